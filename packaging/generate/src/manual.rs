//! The manual pages and shell completions of both programs, from the same clap definitions that the
//! programs read their command lines with. It never repeats an option in words of its own.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// What no clap definition says: the page, a section's heading, and its paragraphs.
const MORE: [(&str, &str, &str); 6] = [
    (
        "tinyagent",
        "ENVIRONMENT",
        "TINY_PRIVATE_KEY, or the variable that --key-env names, holds the key, as 64 hexadecimal digits or \
         as nsec. It is erased before anything from the host or the relay is read.\n\n\
         RUST_LOG selects log lines.\n\n\
         HTTPS_PROXY, ALL_PROXY and NO_PROXY are obeyed for https relays; SSL_CERT_FILE and SSL_CERT_DIR \
         replace the system's certificate authorities.",
    ),
    (
        "tinyagent",
        "FILES",
        "tinyagent-signer is started from the directory that holds tinyagent, never through PATH.",
    ),
    (
        "tinyagent-mcp",
        "EXIT STATUS",
        "0 when the host has closed standard input, 1 when the server could not start, 70 when the signer has \
         ended and the host should start the server anew.",
    ),
    (
        "tinyagent-signer",
        "ENVIRONMENT",
        "TINY_PRIVATE_KEY, or the variable that --key-env names, holds the key unless --key-file is given; \
         it is erased where it stood.",
    ),
    (
        "tinyagent-signer",
        "EXIT STATUS",
        "0 when the peer is done, 1 when the signer could not start, 65 when the peer sent what is no \
         request, 70 on an internal failure.",
    ),
    (
        "tinyagent-signer-verify-log",
        "EXIT STATUS",
        "0 for a whole log, 2 for a broken one, 1 for one that cannot be read.",
    ),
];

/// A command or subcommand with a page of its own.
struct Page {
    command: Command,
    section: &'static str,
}

impl Page {
    fn name(&self) -> &str {
        self.command.get_display_name().unwrap_or_else(|| self.command.get_name())
    }
}

/// Writes the folders `man`, `bash`, `zsh` and `fish` below this one.
///
/// # Errors
/// Where a file cannot be written.
pub fn write(folder: &Path) -> io::Result<()> {
    let mut pages = Vec::new();
    // Section 8 is for what the system starts, section 1 for what people do.
    for (mut command, section) in [(tinyagent_facade::command(), "1"), (tinyagent_signer::command(), "8")] {
        for (shell, name) in [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")] {
            let completions = folder.join(name);
            fs::create_dir_all(&completions)?;
            let program = command.get_name().to_owned();
            clap_complete::generate_to(shell, &mut command, program, &completions)?;
        }
        command.build();
        let subcommands: Vec<Command> = command.get_subcommands().cloned().collect();
        pages.extend(std::iter::once(command).chain(subcommands).map(|command| Page { command, section }));
    }
    let manual = folder.join("man");
    fs::create_dir_all(&manual)?;
    pages.iter().try_for_each(|page| write_page(page, &pages, &manual))
}

fn write_page(page: &Page, all: &[Page], folder: &Path) -> io::Result<()> {
    let (name, section) = (page.name(), page.section);
    let source = format!("tinyagent {}", tinyagent_protocol::VERSION);
    // A date would differ between two builds of one source; an empty one is left out, and shifts the rest.
    let manual = Man::new(page.command.clone()).section(section).source(source).manual("tinyagent").date(" ");
    let mut file = File::create(folder.join(format!("{name}.{section}")))?;
    manual.render_title(&mut file)?;
    manual.render_name_section(&mut file)?;
    let mut synopsis = Roff::new();
    synopsis.control("SH", ["SYNOPSIS"]);
    let usage = page.command.clone().render_usage().to_string();
    verbatim(&mut synopsis, usage.trim_start_matches("Usage:").lines().map(str::trim));
    synopsis.to_writer(&mut file)?;
    manual.render_options_section(&mut file)?;
    if page.command.has_subcommands() {
        manual.render_subcommands_section(&mut file)?;
    }
    let mut rest = Roff::new();
    for (_, heading, text) in MORE.iter().filter(|(page, _, _)| *page == name) {
        rest.control("SH", [*heading]);
        paragraphs(&mut rest, text);
    }
    if let Some(text) = page.command.get_after_help() {
        rest.control("SH", ["NOTES"]);
        paragraphs(&mut rest, &text.to_string());
    }
    rest.control("SH", ["SEE ALSO"]);
    // No hyphen into a name.
    rest.control("nh", []);
    let mut others = all.iter().filter(|other| other.name() != name).peekable();
    while let Some(other) = others.next() {
        let comma = if others.peek().is_some() { "," } else { "" };
        rest.text([bold(other.name()), roman(format!("({}){comma}", other.section))]);
    }
    rest.to_writer(&mut file)
}

/// Text as on a terminal: blank lines between paragraphs, indented lines kept as they are.
fn paragraphs(roff: &mut Roff, text: &str) {
    for (number, paragraph) in text.split("\n\n").enumerate() {
        if number > 0 {
            roff.control("PP", []);
        }
        let (plain, indented): (Vec<&str>, Vec<&str>) =
            paragraph.lines().partition(|line| !line.starts_with(' '));
        plain.into_iter().for_each(|line| {
            roff.text([roman(line)]);
        });
        if !indented.is_empty() {
            verbatim(roff, indented.into_iter());
        }
    }
}

fn verbatim<'a>(roff: &mut Roff, lines: impl Iterator<Item = &'a str>) {
    roff.control("nf", []);
    lines.for_each(|line| {
        roff.text([roman(line)]);
    });
    roff.control("fi", []);
}
