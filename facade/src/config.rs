//! Ready entries for the configuration of known hosts: the program by its path, the key by its
//! variable's name, never by value.

use std::path::Path;

use serde_json::{Value, json};

/// The name of the entry.
const ENTRY: &str = "tiny";

/// How often Hermes looks whether the server is there, in seconds. It finds one that ended between two calls
/// at the next look only, by itself every 180 seconds.
const HERMES_KEEPALIVE_SECONDS: u32 = 30;

/// A host whose configuration's form is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// Hermes Agent, `~/.hermes/config.yaml`.
    Hermes,
    /// Claude Code, `.mcp.json`.
    Claude,
    /// Cursor, `~/.cursor/mcp.json`.
    Cursor,
    /// Visual Studio Code, `.vscode/mcp.json`.
    VsCode,
    /// Zed, `settings.json`.
    Zed,
    /// Codex, `~/.codex/config.toml`.
    Codex,
    /// Goose, `~/.config/goose/config.yaml`.
    Goose,
}

impl HostKind {
    /// Every host by the word that the command line has for it.
    pub const ALL: [(&str, HostKind); 7] = [
        ("hermes", HostKind::Hermes),
        ("claude", HostKind::Claude),
        ("cursor", HostKind::Cursor),
        ("vscode", HostKind::VsCode),
        ("zed", HostKind::Zed),
        ("codex", HostKind::Codex),
        ("goose", HostKind::Goose),
    ];

    /// Where the entry belongs and what else is to be done, for the person who runs the command.
    pub fn advice(self, key_env: Option<&str>) -> String {
        let place = match self {
            HostKind::Hermes => "~/.hermes/config.yaml",
            HostKind::Claude => ".mcp.json of the project",
            HostKind::Cursor => "~/.cursor/mcp.json",
            HostKind::VsCode => ".vscode/mcp.json",
            HostKind::Zed => "Zed's settings.json",
            HostKind::Codex => "~/.codex/config.toml",
            HostKind::Goose => "~/.config/goose/config.yaml",
        };
        let Some(name) = key_env else {
            return format!("goes into {place}; the host needs no key, the signer has it");
        };
        let key = match self {
            HostKind::Hermes => format!("put {name}=… into ~/.hermes/.env"),
            HostKind::Claude => format!("start Claude Code with {name} set"),
            HostKind::Cursor => format!("start Cursor with {name} set"),
            HostKind::VsCode => "the editor asks for the key once".into(),
            HostKind::Zed => format!("start Zed with {name} set"),
            HostKind::Codex => format!("start Codex with {name} set"),
            HostKind::Goose => {
                format!("start Goose with {name} set, or let `goose configure` keep it in the keyring")
            }
        };
        format!("goes into {place}; {key}")
    }
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The program's absolute path.
    pub program: &'a Path,
    /// Its arguments, `mcp` first.
    pub args: &'a [String],
    /// The variable that holds the key; none where a signer under another user has it.
    pub key_env: Option<&'a str>,
}

impl Entry<'_> {
    /// The entry in this host's own form, with a line end.
    pub fn text(&self, host: HostKind) -> String {
        match host {
            HostKind::Hermes => self.hermes(),
            HostKind::Claude => self.json("mcpServers", |name| format!("${{{name}}}")),
            HostKind::Cursor => self.json("mcpServers", |name| format!("${{env:{name}}}")),
            HostKind::VsCode => self.vs_code(),
            HostKind::Zed => pretty(&json!({"context_servers": {ENTRY: {
                "source": "custom", "command": self.program(), "args": self.args, "env": {}
            }}})),
            HostKind::Codex => self.codex(),
            HostKind::Goose => self.goose(),
        }
    }

    fn program(&self) -> String {
        self.program.display().to_string()
    }

    fn json(&self, key: &str, reference: impl Fn(&str) -> String) -> String {
        let mut entry = json!({"type": "stdio", "command": self.program(), "args": self.args});
        if let Some(name) = self.key_env {
            entry["env"] = json!({name: reference(name)});
        }
        pretty(&json!({key: {ENTRY: entry}}))
    }

    fn vs_code(&self) -> String {
        let mut servers = json!({"type": "stdio", "command": self.program(), "args": self.args});
        let mut inputs = Vec::new();
        if let Some(name) = self.key_env {
            servers["env"] = json!({name: "${input:tiny-private-key}"});
            inputs.push(json!({
                "type": "promptString", "id": "tiny-private-key",
                "description": "The agent's key (hex or nsec)", "password": true
            }));
        }
        pretty(&json!({"servers": {ENTRY: servers}, "inputs": inputs}))
    }

    fn hermes(&self) -> String {
        let mut text = format!("mcp_servers:\n  {ENTRY}:\n    command: {}\n", quoted(&self.program()));
        text.push_str(&format!("    args: [{}]\n", self.quoted_args()));
        text.push_str(&format!("    keepalive_interval: {HERMES_KEEPALIVE_SECONDS}\n"));
        if let Some(name) = self.key_env {
            text.push_str(&format!("    env:\n      {name}: {}\n", quoted(&format!("${{{name}}}"))));
        }
        text
    }

    fn goose(&self) -> String {
        let keys = self.key_env.map(quoted).unwrap_or_default();
        format!(
            "extensions:\n  {ENTRY}:\n    name: {ENTRY}\n    description: \"Work on a Nostr relay\"\n    type: stdio\n    \
             enabled: true\n    cmd: {}\n    \
             args: [{}]\n    env_keys: [{keys}]\n    envs: {{}}\n    timeout: 300\n",
            quoted(&self.program()),
            self.quoted_args()
        )
    }

    fn codex(&self) -> String {
        let mut text = format!("[mcp_servers.{ENTRY}]\ncommand = {}\n", quoted(&self.program()));
        text.push_str(&format!("args = [{}]\n", self.quoted_args()));
        if let Some(name) = self.key_env {
            text.push_str(&format!("env_vars = [{}]\n", quoted(name)));
        }
        text
    }

    fn quoted_args(&self) -> String {
        self.args.iter().map(|arg| quoted(arg)).collect::<Vec<_>>().join(", ")
    }
}

/// A string as JSON writes it, which YAML and TOML read alike.
fn quoted(text: &str) -> String {
    let mut out = String::new();
    crate::result::push_host_string(&mut out, text);
    out
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
