//! Files in which the output of each job is stored, laid out as GNU parallel lays them out.
//!
//! | name | standard output | standard error | the job's number |
//! |---|---|---|---|
//! | a folder `DIR` | `DIR/1/INPUT/stdout` | `DIR/1/INPUT/stderr` | `DIR/1/INPUT/seq` |
//! | with placeholders, ending in `/` | `NAME/stdout` | `NAME/stderr` | `NAME/seq` |
//! | with placeholders | `NAME` | `NAME.err` | `NAME.seq` |
//!
//! In a folder, a job of several `:::` has one level more for each: `DIR/1/FIRST/2/SECOND`. Several inputs of one list are all of list 1.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use super::template::BadCommand;
use super::text::Text;

/// The longest name that file systems have; a longer one is cut.
const LONGEST_NAME: usize = 255;

/// When a folder's path is longer, no further inputs are in it: file systems have a limit, 4096 on Linux.
const LONGEST_PATH: usize = 3000;

/// Where the outputs of jobs are stored.
#[derive(Clone, Debug)]
pub struct Results(Layout);

#[derive(Clone, Debug)]
enum Layout {
    /// A folder with folders for the inputs. Whether each of a job's inputs is of a list of its own.
    Folder(PathBuf, bool),
    /// A name for each job.
    Named(Text),
}

impl Results {
    /// Makes it from the name that the user gave, for jobs of at most `inputs` inputs, which are of `lists` lists.
    ///
    /// # Errors
    /// A placeholder asks for an input that no job has.
    pub fn new(name: &[u8], inputs: usize, lists: usize) -> Result<Self, BadCommand> {
        if Text::has_placeholder(name) {
            return Text::new(name, inputs).map(|text| Self(Layout::Named(text)));
        }
        Ok(Self(Layout::Folder(path(name.to_vec()), lists > 1)))
    }

    /// Creates the files for a job's standard output and standard error, and the folders and the file with its number.
    pub(crate) fn open(
        &self,
        inputs: &[Vec<u8>],
        number: u64,
        slot: usize,
    ) -> io::Result<[File; 2]> {
        let folder = match &self.0 {
            Layout::Folder(root, has_lists) => {
                let mut folder = root.clone();
                for (index, input) in inputs.iter().enumerate() {
                    if folder.as_os_str().len() > LONGEST_PATH {
                        break;
                    }
                    folder.push(if *has_lists { (index + 1).to_string() } else { "1".to_owned() });
                    folder.push(path(as_name(input)));
                }
                folder
            }
            Layout::Named(text) => {
                let name = text.expand(inputs, number, slot);
                if !name.ends_with(b"/") {
                    let name = path(name);
                    if let Some(folder) = name.parent() {
                        fs::create_dir_all(folder)?;
                    }
                    let with = |ending: &str| {
                        let mut name = name.clone().into_os_string();
                        name.push(ending);
                        PathBuf::from(name)
                    };
                    return files(&name, &with(".err"), &with(".seq"), number);
                }
                path(name)
            }
        };
        fs::create_dir_all(&folder)?;
        let [output, error, seq] = ["stdout", "stderr", "seq"].map(|name| folder.join(name));
        files(&output, &error, &seq, number)
    }
}

fn files(output: &Path, error: &Path, seq: &Path, number: u64) -> io::Result<[File; 2]> {
    fs::write(seq, number.to_string())?;
    Ok([File::create(output)?, File::create(error)?])
}

fn path(name: Vec<u8>) -> PathBuf {
    OsString::from_vec(name).into()
}

/// The name of an input's folder: no other folder than one below its parent, whatever the input contains.
fn as_name(input: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(input.len());
    // GNU parallel stores the results of such an input elsewhere.
    if matches!(input, b"" | b"." | b"..") {
        name.push(b'\\');
    }
    for &byte in input {
        match byte {
            b'/' => name.extend_from_slice(br"\_"),
            b'\\' => name.extend_from_slice(br"\\"),
            b'\t' => name.extend_from_slice(br"\t"),
            0 => name.extend_from_slice(br"\0"),
            byte => name.push(byte),
        }
    }
    name.truncate(LONGEST_NAME);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_input_is_a_name_in_its_folder() {
        let names = ["a/b", r"\", "a\tb", "..", ".", "", "x y", "..."]
            .map(|input| as_name(input.as_bytes()));
        let names = names.map(|name| String::from_utf8(name).unwrap());
        assert_eq!(names, [r"a\_b", r"\\", r"a\tb", r"\..", r"\.", r"\", "x y", "..."]);
        assert_eq!(as_name(&[b'/'; 200]).len(), LONGEST_NAME);
    }
}
