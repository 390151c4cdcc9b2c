//! The layout of the shared table, and how an entry is packed into a word.
//!
//! The table is an array of 64-bit words; nothing in it is a pointer. `Layout` has three numbers: of homes, of words in a mask, and of
//! entries. All positions follow from these three numbers, which are not read from the table again once they are known.
//!
//! ```text
//! header     16 words   magic, layout, token, flags, the home of all members, counts
//! homes       8 words each
//! masks       CPUs of each home, then the widest mask that a member may have
//! distances   a byte for each pair of homes
//! entries     2 words each: processes and their homes, and since when
//! ```

/// The first word identifies the table and the version of its layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"nearqtr1");
/// A table for more homes is refused when it is made.
pub const MAX_HOMES: usize = 256;
/// 8192 CPUs, as many as the largest kernel is built for.
pub const MAX_MASK_WORDS: usize = 128;
/// This is more than the number of processes with homes on any machine.
pub const MAX_ENTRIES: usize = 1 << 16;
/// The usual number of entries: they take 128 KiB, of which only pages that were used are allocated.
pub const USUAL_ENTRIES: usize = 1 << 13;
/// How many entries are checked, from the one selected by a process's number. Numbers are assigned in sequence, so the first entry is
/// nearly always free.
pub const WINDOW: usize = 64;

const HEADER_WORDS: usize = 16;
const HOME_WORDS: usize = 8;
const ENTRY_WORDS: usize = 2;
const DISTANCES_IN_A_WORD: usize = 8;

/// How the system names the file that holds a table.
pub const FILE: &[u8] = b"/memfd:nearq-tree";

/// Words of the header.
pub mod header {
    /// The word that identifies the table.
    pub const MAGIC: usize = 0;
    /// The layout.
    pub const LAYOUT: usize = 1;
    /// The token by which members recognise the table.
    pub const TOKEN: usize = 2;
    /// `member::MEMORY` and `member::MOVES`.
    pub const FLAGS: usize = 3;
    /// The index of the home of all members, plus one, or 0 if each member chooses.
    pub const FIXED: usize = 4;
    /// Members that found no free entry.
    pub const FULL: usize = 9;
    /// Members whose affinity was refused.
    pub const AFFINITY_REFUSED: usize = 10;
    /// Members whose memory policy was refused.
    pub const MEMORY_REFUSED: usize = 11;
    /// Members that chose their CPUs themselves.
    pub const LEFT_ALONE: usize = 12;
}

/// Words of a home.
pub mod home {
    /// Homes given out: entries that live here.
    pub const GIVEN: usize = 0;
    /// Running work of tasks without a home here, in thousandths of a task; nearq publishes it.
    pub const OTHERS: usize = 1;
    /// The capacity of its CPUs together, in thousandths of a CPU.
    pub const CAPACITY: usize = 2;
    /// The system's number of the node from which its memory comes.
    pub const MEMORY: usize = 3;
    /// The system's number of the node or of the cache.
    pub const ID: usize = 4;
    /// How often a member has chosen this home.
    pub const CHOSEN: usize = 5;
}

/// How many of each part a table has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    homes: usize,
    mask_words: usize,
    entries: usize,
}

impl Layout {
    /// A layout; `None` if a number is zero or beyond its limit, or `entries` is not a power of two.
    #[inline]
    pub const fn new(homes: usize, mask_words: usize, entries: usize) -> Option<Self> {
        let homes_fit = homes >= 1 && homes <= MAX_HOMES;
        let masks_fit = mask_words >= 1 && mask_words <= MAX_MASK_WORDS;
        let entries_fit = entries <= MAX_ENTRIES && entries.is_power_of_two();
        if homes_fit && masks_fit && entries_fit {
            Some(Self { homes, mask_words, entries })
        } else {
            None
        }
    }

    /// The layout that a word of the header has; `None` if a number is beyond its limit.
    #[inline]
    pub const fn of_word(word: u64) -> Option<Self> {
        let (homes, mask_words) = (word & 0xffff, word >> 16 & 0xffff);
        Self::new(homes as usize, mask_words as usize, (word >> 32) as usize)
    }

    /// The word of the header.
    #[inline]
    pub const fn to_word(self) -> u64 {
        self.homes as u64 | (self.mask_words as u64) << 16 | (self.entries as u64) << 32
    }

    /// Number of homes.
    #[inline]
    pub const fn homes(self) -> usize {
        self.homes
    }

    /// Words of a mask of CPUs.
    #[inline]
    pub const fn mask_words(self) -> usize {
        self.mask_words
    }

    /// Number of entries, a power of two.
    #[inline]
    pub const fn entries(self) -> usize {
        self.entries
    }

    /// The first word of a home.
    #[inline]
    pub const fn home_at(home: usize) -> usize {
        HEADER_WORDS + home * HOME_WORDS
    }

    /// The mask of a home; index `homes()` is the widest mask.
    #[inline]
    pub const fn mask_at(self, home: usize) -> usize {
        Self::home_at(self.homes) + home * self.mask_words
    }

    /// The index of the word, and the shift within it.
    #[inline]
    pub const fn distance_at(self, from: usize, to: usize) -> (usize, u32) {
        let pair = from * self.homes + to;
        let word = self.mask_at(self.homes + 1) + pair / DISTANCES_IN_A_WORD;
        (word, (pair % DISTANCES_IN_A_WORD) as u32 * 8)
    }

    /// The first word of an entry.
    #[inline]
    pub const fn entry_at(self, entry: usize) -> usize {
        let distances = (self.homes * self.homes).div_ceil(DISTANCES_IN_A_WORD);
        self.mask_at(self.homes + 1) + distances + entry * ENTRY_WORDS
    }

    /// Words of the whole table.
    #[inline]
    pub const fn words(self) -> usize {
        self.entry_at(self.entries)
    }
}

/// How an entry's process relates to its home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It runs on its home's CPUs.
    Home,
    /// Its home was busy and other homes were idle: it may run elsewhere for now.
    Out,
    /// It has chosen CPUs itself since then; nearq leaves it alone.
    Own,
}

/// How a process got its home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// It chose the least loaded home when a program was executed.
    Exec,
    /// It chose the least loaded home when it was forked.
    Fork,
    /// It was given the least loaded home after it had used some CPU time.
    Used,
    /// It was given a home when it was started.
    Given,
    /// It has the home of its parent.
    Inherited,
}

/// A process and its home: the first word of an entry. Only this word must change at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The process, by its number in `/proc`.
    pub pid: u32,
    /// The index of its home.
    pub home: usize,
    /// How it got its home.
    pub how: How,
    /// How it relates to its home.
    pub state: State,
}

impl Entry {
    /// `None` for a free entry, and for a word that is not a packed entry.
    #[inline]
    pub const fn of_word(word: u64) -> Option<Self> {
        let state = match word >> 56 {
            1 => State::Home,
            2 => State::Out,
            3 => State::Own,
            _ => return None,
        };
        let how = match word >> 48 & 0xff {
            1 => How::Exec,
            2 => How::Fork,
            3 => How::Used,
            4 => How::Given,
            5 => How::Inherited,
            _ => return None,
        };
        let (pid, home) = (word as u32, (word >> 32 & 0xffff) as usize);
        if pid == 0 { None } else { Some(Self { pid, home, how, state }) }
    }

    /// The word of the entry.
    #[inline]
    pub const fn to_word(self) -> u64 {
        let state = match self.state {
            State::Home => 1_u64,
            State::Out => 2,
            State::Own => 3,
        };
        let how = match self.how {
            How::Exec => 1_u64,
            How::Fork => 2,
            How::Used => 3,
            How::Given => 4,
            How::Inherited => 5,
        };
        self.pid as u64 | (self.home as u64 & 0xffff) << 32 | how << 48 | state << 56
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_the_layout_do_not_overlap() {
        let layout = Layout::new(3, 2, 8).unwrap();
        let mut places: Vec<usize> = (0..HEADER_WORDS).collect();
        places.extend(
            (0..3).flat_map(|home| Layout::home_at(home)..Layout::home_at(home) + HOME_WORDS),
        );
        places.extend((0..4).flat_map(|home| layout.mask_at(home)..layout.mask_at(home) + 2));
        places.extend(layout.distance_at(0, 0).0..=layout.distance_at(2, 2).0);
        places.extend((0..8).flat_map(|entry| layout.entry_at(entry)..layout.entry_at(entry) + 2));
        assert_eq!(places, (0..layout.words()).collect::<Vec<_>>());
    }

    #[test]
    fn a_layout_can_be_read_back_and_stays_within_its_limits() {
        for (homes, words, entries) in [(1, 1, 1), (256, 128, 1 << 16), (2, 1, 8192)] {
            let layout = Layout::new(homes, words, entries).unwrap();
            assert_eq!(Layout::of_word(layout.to_word()), Some(layout));
        }
        for refused in
            [(0, 1, 8), (257, 1, 8), (2, 0, 8), (2, 129, 8), (2, 1, 0), (2, 1, 9), (2, 1, 1 << 17)]
        {
            assert_eq!(Layout::new(refused.0, refused.1, refused.2), None, "{refused:?}");
        }
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..10_000 {
            if let Some(layout) = Layout::of_word(random.u64(..)) {
                assert!(layout.words() < 1 << 20);
            }
        }
    }

    #[test]
    fn an_entry_can_be_read_back() {
        for state in [State::Home, State::Out, State::Own] {
            for how in [How::Exec, How::Fork, How::Used, How::Given, How::Inherited] {
                let entry = Entry { pid: 4_194_304, home: 255, how, state };
                assert_eq!(Entry::of_word(entry.to_word()), Some(entry));
            }
        }
        assert_eq!(Entry::of_word(0), None);
        assert_eq!(Entry::of_word(u64::MAX), None);
    }
}
