//! `tinyagent`: the host's side. See the crate `tinyagent-facade`.

fn main() -> std::process::ExitCode {
    tinyagent_facade::main()
}
