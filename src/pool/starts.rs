//! From where a block starts to its piece: a table of pages, so that a look takes two loads. Pure.
//!
//! Among small blocks each unit has a line; a large block is longer than [`super::size_class::SMALL_UNITS`], so no two
//! start within as many units, and a line for each of those is enough. What was set stays when a block is freed: whether
//! there is one, its piece says.

use super::nodes::NIL;

const PAGE_BITS: u32 = 12;
const PAGE: usize = 1 << PAGE_BITS;

/// The table.
#[derive(Debug)]
pub(super) struct Starts {
    shift: u32,
    pages: Vec<Option<Box<[u32; PAGE]>>>,
}

impl Starts {
    /// For blocks of more than 2^`shift` units, or, for 0, of any size.
    pub(super) const fn new(shift: u32) -> Self {
        Self { shift, pages: Vec::new() }
    }

    /// The piece that was set last for the line of `unit`; whether a block starts there, the piece says.
    #[inline]
    pub(super) fn get(&self, unit: u32) -> Option<u32> {
        let line = (unit >> self.shift) as usize;
        let i = self.pages.get(line >> PAGE_BITS)?.as_ref()?[line & (PAGE - 1)];
        (i != NIL).then_some(i)
    }

    #[inline]
    pub(super) fn set(&mut self, unit: u32, i: u32) {
        let line = (unit >> self.shift) as usize;
        match self.pages.get_mut(line >> PAGE_BITS) {
            Some(Some(page)) => page[line & (PAGE - 1)] = i,
            _ => self.set_in_new_page(line, i),
        }
    }

    #[cold]
    fn set_in_new_page(&mut self, line: usize, i: u32) {
        let number = line >> PAGE_BITS;
        if self.pages.len() <= number {
            self.pages.resize(number + 1, None);
        }
        let page = self.pages[number].get_or_insert_with(|| Box::new([NIL; PAGE]));
        page[line & (PAGE - 1)] = i;
    }

    /// The nearest piece that was set at or before the line of `unit`, of those that `start` knows a block's start of,
    /// and that starts in its line.
    pub(super) fn at_or_before(&self, unit: u32, start: impl Fn(u32) -> Option<u32>) -> Option<u32> {
        let line = (unit >> self.shift) as usize;
        let mut number = (line >> PAGE_BITS).min(self.pages.len().checked_sub(1)?);
        loop {
            if let Some(page) = &self.pages[number] {
                let last = if number == line >> PAGE_BITS { line & (PAGE - 1) } else { PAGE - 1 };
                let is_there = |at: usize, i: u32| {
                    start(i).is_some_and(|unit| (unit >> self.shift) as usize == (number << PAGE_BITS) + at)
                };
                let mut lines = page[..=last].iter().enumerate().rev();
                if let Some((_, i)) = lines.find(|(at, i)| **i != NIL && is_there(*at, **i)) {
                    return Some(*i);
                }
            }
            number = number.checked_sub(1)?;
        }
    }
}
