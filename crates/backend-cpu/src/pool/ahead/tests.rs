//! What is asked for, and in which order.

use super::*;

/// An order of weights with so many bytes, which was met once; cursors of two threads.
struct Setup {
    order: Arc<Order>,
    weights: Vec<Vec<u8>>,
    links: Vec<Arc<Link>>,
}

impl Setup {
    fn new(sizes: &[usize]) -> Self {
        let weights: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![0; size]).collect();
        let links: Vec<_> = weights.iter().map(|weight| Link::new([&weight[..]].into_iter())).collect();
        let setup = Self { order: Arc::default(), weights, links };
        setup.links.iter().chain([&setup.links[0]]).for_each(|link| setup.order.meet(link));
        setup
    }

    fn cursor(&self, thread: usize, most: usize) -> Cursor {
        Cursor { most, ..Cursor::new(&self.order, thread, 2) }
    }

    /// Weight, first byte and lines of what a cursor asks for.
    fn next(&self, cursor: &mut Cursor, count: usize) -> Option<(usize, usize, usize)> {
        let fetch = cursor.next(count);
        let weight = self.weights.iter().position(|weight| weight.as_ptr_range().contains(&fetch.start))?;
        Some((weight, fetch.start.addr() - self.weights[weight].as_ptr().addr(), fetch.lines))
    }
}

#[test]
fn each_thread_asks_for_its_share_of_what_follows() {
    let setup = Setup::new(&[256, 512, 256]);
    let [mut first, mut second] = [0, 1].map(|thread| setup.cursor(thread, 1 << 20));
    let all = |cursor: &mut Cursor| std::iter::from_fn(|| setup.next(cursor, 192)).collect::<Vec<_>>();
    // Weight 0 has its product; weights 1 and 2 follow, and then 0 again, which is not asked for.
    assert_eq!(all(&mut first), [(1, 0, 3), (1, 192, 1), (2, 0, 2)]);
    assert_eq!(all(&mut second), [(1, 256, 3), (1, 448, 1), (2, 128, 2)]);
}

#[test]
fn only_so_much_lies_ahead_until_products_catch_up() {
    let setup = Setup::new(&[256, 512, 256]);
    let mut cursor = setup.cursor(0, 192);
    assert_eq!(setup.next(&mut cursor, 192), Some((1, 0, 3)));
    assert_eq!(setup.next(&mut cursor, 192), None);
    setup.order.meet(&setup.links[1]);
    assert_eq!(setup.next(&mut cursor, 192), Some((2, 0, 2)));
    assert_eq!(cursor.ahead, 128);
    // A weight that did not follow: what was asked for was in vain.
    setup.order.meet(&setup.links[1]);
    assert_eq!(setup.next(&mut cursor, 64), None, "the weight now follows itself");
    assert_eq!(cursor.ahead, 0);
    setup.order.meet(&setup.links[2]);
    assert_eq!(setup.next(&mut cursor, 64), Some((0, 0, 1)));
}

#[test]
fn a_weight_may_lie_in_pieces_and_go_away() {
    let (one, two) = ([0u8; 128], [0u8; 128]);
    let order = Arc::new(Order::default());
    let (first, pieces) = (Link::new([&one[..0]].into_iter()), Link::new([&one[..], &two[..]].into_iter()));
    [&first, &pieces, &first].into_iter().for_each(|link| order.meet(link));
    let mut cursor = Cursor { most: 1 << 20, ..Cursor::new(&order, 0, 1) };
    let at = |start: *const u8, lines| Fetch { start: std::ptr::without_provenance(start.addr()), lines };
    assert_eq!(cursor.next(192), at(one.as_ptr(), 2));
    assert_eq!(cursor.next(192), at(two.as_ptr(), 2));
    drop(pieces);
    order.meet(&first);
    assert!(cursor.next(192).is_empty());
    assert!(Cursor::default().next(64).is_empty());
}
