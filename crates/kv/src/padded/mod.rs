//! Rows that share planes `[row, head, column, field]`, for devices that attend to many rows in one call.
//!
//! A row's position `p` lies in column `(p + shift) % columns`, in planes of keys that are kept whole and of windows
//! alike. Shifts are chosen whenever planes are made anew, such that all rows end at one column:
//!
//! ```text
//!   kept whole            columns ->            a window of 4 (of the same rows)
//!   row 0  shift 4        . . . . 0 1 2 +       row 0  1 2 + . 0
//!   row 1  shift 0        0 1 2 3 4 5 6 +       row 1  5 6 + . 4
//!   row 2  shift 6        . . . . . . 0 +       row 2  . 0 + . .
//! ```
//!
//! While the rows' steps are equally long their tokens (`+`) go into one column, one write for all rows; rows of other
//! steps are written one by one, as are those that kept less of a round than others. Merging, growing, filtering,
//! reordering and aligning are one operation: new planes are made, live columns are copied into them, and only then do
//! they replace the old ones. The padding that the longest row does not have is gone with it.
//!
//! What a query reads is a list of runs, so that there is no mask: nobody computes with what lies in padding, and no
//! length counts it. A step's rows are packed without padding, so that a prefill needs none on its right: there are no
//! remembered ends, nothing is rolled, and no threshold can be passed by a token that is not there. Rings need no
//! common index, and a ring whose rows stand differently needs no block writes.

mod seat;
mod sheet;

use crate::{
    bank::{Bank, BankRows, Scope},
    ragged::Kit,
};
use sheet::Sheet;
use std::rc::Rc;

impl BankRows {
    /// Rows that share padded planes, each from its first step of at most `most` tokens on. Longer steps of a row that
    /// has planes of its own, such as the chunks of a prompt, leave it and its company where they are.
    pub fn padded(kit: Rc<Kit>, most: usize) -> Self {
        let of = Rc::clone(&kit);
        Self::new(kit, most, |layer, encoded| {
            let scope = Scope { kit: Rc::clone(&of), layer, encoded };
            Some(Box::new(Sheet::new(scope)) as Box<dyn Bank>)
        })
    }
}
