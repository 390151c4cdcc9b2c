//! Words in the form in which a shell must be given them.

/// Bytes that every shell takes literally.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"%+,-./:=@_^".contains(&byte) || byte >= 0x80
}

/// Appends the word, in single quotes if a shell would not take it literally.
///
/// ```
/// use nearq_processes::jobs::quote;
///
/// let mut line = Vec::new();
/// quote(b"it's", &mut line);
/// assert_eq!(line, br"'it'\''s'");
/// ```
pub fn quote(word: &[u8], line: &mut Vec<u8>) {
    if !word.is_empty() && word.iter().all(|&byte| is_plain(byte)) {
        line.extend_from_slice(word);
        return;
    }
    line.push(b'\'');
    for &byte in word {
        match byte {
            // Closes the quotes, adds the byte itself, and opens them again.
            b'\'' => line.extend_from_slice(br"'\''"),
            byte => line.push(byte),
        }
    }
    line.push(b'\'');
}

/// A command as one line for a shell.
pub fn quoted<'a>(words: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut line = Vec::new();
    for word in words {
        if !line.is_empty() {
            line.push(b' ');
        }
        quote(word, &mut line);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn plain_words_are_not_quoted() {
        let words: [&[u8]; 3] = [b"gzip", b"-9", "/data/größe_1.txt".as_bytes()];
        assert_eq!(quoted(words), "gzip -9 /data/größe_1.txt".as_bytes());
    }

    #[test]
    fn a_shell_restores_every_quoted_word() {
        let words: [&[u8]; 10] = [
            b"",
            b" ",
            b"a b",
            b"it's",
            b"'",
            b"$HOME `id` $(id)",
            b"*?[a]{b,c}~#!\\",
            b"a\nb\tc",
            b"<>|&;()\"",
            b"\xff\x01",
        ];
        let line = [b"printf '%s\\0' ".as_slice(), &quoted(words)].concat();
        let line = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&line);
        let output = Command::new("/bin/sh").arg("-c").arg(line).output().unwrap();
        let back: Vec<&[u8]> = output.stdout.split(|byte| *byte == 0).collect();
        assert_eq!(back[..words.len()], words);
    }
}
