//! Whose step is next, where rows are kept in different ways and cannot share one.
//!
//! Each group of rows earns as much as it has rows, at every step; the group that has earned most takes the step and pays
//! what all have earned. So groups take turns in proportion to their rows, evenly spread, and none waits for more than all
//! rows divided by its own.
//!
//! Invariant: what a group is owed only depends on the steps since it came.

/// What groups are owed, by the number that names each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    owed: Vec<(usize, i64)>,
}

impl Turns {
    /// The group whose step is next, of those that have work, each with its number of rows; of equals the first.
    pub(crate) fn next(&mut self, groups: &[(usize, usize)]) -> Option<usize> {
        self.owed.retain(|(group, _)| groups.iter().any(|(present, _)| present == group));
        let mut best: Option<(usize, i64)> = None;
        let mut sum = 0;
        for &(group, rows) in groups {
            let earned = i64::try_from(rows).unwrap_or(i64::MAX);
            sum += earned;
            let owed = self.of(group);
            *owed += earned;
            if best.is_none_or(|(_, most)| *owed > most) {
                best = Some((group, *owed));
            }
        }
        let (group, _) = best?;
        *self.of(group) -= sum;
        Some(group)
    }

    fn of(&mut self, group: usize) -> &mut i64 {
        let index = self.owed.iter().position(|(known, _)| *known == group).unwrap_or_else(|| {
            self.owed.push((group, 0));
            self.owed.len() - 1
        });
        &mut self.owed[index].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn turns(groups: &[(usize, usize)], count: usize) -> Vec<usize> {
        let mut turns = Turns::default();
        (0..count).map(|_| turns.next(groups).expect("a group")).collect()
    }

    #[test]
    fn turns_are_taken_in_proportion_to_rows() {
        assert_eq!(turns(&[(7, 1)], 3), [7, 7, 7]);
        assert_eq!(turns(&[(0, 1), (1, 1)], 4), [0, 1, 0, 1]);
        assert_eq!(turns(&[(0, 3), (1, 1)], 8), [0, 0, 1, 0, 0, 0, 1, 0]);
        assert_eq!(Turns::default().next(&[]), None);
    }

    #[test]
    fn a_group_that_leaves_is_owed_nothing() {
        let mut turns = Turns::default();
        // Group 0 has earned one and group 1 owes one; what group 0 had is gone when it comes back, or it would be first.
        assert_eq!(turns.next(&[(0, 1), (1, 3)]), Some(1));
        assert_eq!(turns.next(&[(1, 3)]), Some(1));
        assert_eq!(turns.next(&[(0, 1), (1, 3)]), Some(1));
        assert_eq!(turns.next(&[(0, 1), (1, 3)]), Some(0));
    }

    proptest! {
        /// By construction every group gets its share, to within one step.
        #[test]
        fn no_group_waits_for_more_than_its_share(rows in prop::collection::vec(1_usize..20, 1..6)) {
            let groups: Vec<(usize, usize)> = rows.iter().copied().enumerate().collect();
            let all: usize = rows.iter().sum();
            let taken = turns(&groups, 3 * all);
            for (group, &own) in rows.iter().enumerate() {
                prop_assert_eq!(taken.iter().filter(|turn| **turn == group).count(), 3 * own);
                let places: Vec<usize> = (0..taken.len()).filter(|&place| taken[place] == group).collect();
                let gaps = places.windows(2).map(|pair| pair[1] - pair[0]);
                prop_assert!(gaps.max().unwrap_or(0) <= 2 * all.div_ceil(own));
            }
        }
    }
}
