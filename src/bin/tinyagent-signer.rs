//! The program `tinyagent-signer`.

fn main() {
    tinyagent_signer::main()
}
