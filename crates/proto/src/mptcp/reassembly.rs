//! The receiver's side, which puts data segments back in order.

/// Which data segments have arrived beyond the first one missing, as bits in a ring.
#[derive(Clone, Debug, Default)]
pub struct Reassembly {
    next: u32,
    words: Vec<u64>,
    held: u32,
    duplicates: u64,
}

impl Reassembly {
    /// Handles a data segment; returns how many segments are newly in order.
    #[inline]
    pub fn handle_data(&mut self, data_seq: u32) -> u32 {
        if data_seq < self.next {
            self.duplicates += 1;
            return 0;
        }
        if data_seq == self.next && self.held == 0 {
            self.next += 1;
            return 1;
        }
        self.reserve(data_seq);
        let ring = self.words.len() - 1;
        let word = &mut self.words[(data_seq >> 6) as usize & ring];
        let bit = 1 << (data_seq & 63);
        if *word & bit != 0 {
            self.duplicates += 1;
            return 0;
        }
        *word |= bit;
        self.held += 1;
        if data_seq != self.next {
            return 0;
        }
        let before = self.next;
        loop {
            let shift = self.next & 63;
            let word = &mut self.words[(self.next >> 6) as usize & ring];
            let run = (*word >> shift).trailing_ones();
            // A run of 64 from the first bit on is the whole word.
            *word &= if run == 64 { 0 } else { !(((1 << run) - 1) << shift) };
            self.next += run;
            if run == 0 || shift + run < 64 {
                break;
            }
        }
        self.held -= self.next - before;
        self.next - before
    }

    /// The first data segment that is missing.
    #[inline]
    pub fn data_ack(&self) -> u32 {
        self.next
    }

    /// Segments that wait for earlier ones.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Segments that came more than once.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Makes room for the segments from `next` to `data_seq`.
    fn reserve(&mut self, data_seq: u32) {
        let needed = (((data_seq - self.next) >> 6) as usize + 2).next_power_of_two().max(4);
        if needed <= self.words.len() {
            return;
        }
        let mut words = vec![0; needed];
        if let Some(ring) = self.words.len().checked_sub(1) {
            let first = self.next >> 6;
            for word in first..=first + ring as u32 {
                words[word as usize & (needed - 1)] = self.words[word as usize & ring];
            }
        }
        self.words = words;
    }
}
