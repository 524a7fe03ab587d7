//! Stored files and room attachments.

use super::input::Form::{Hex, Integer, Text, Words};
use super::input::{optional, required};
use super::tags::room;
use super::{Call, Outcome, Tool, ToolAccess};
use crate::store::File;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The most that read_attachment returns, in bytes (relay document, Tools).
const READ_LIMIT_BYTES: i64 = 4 * 1024 * 1024;
/// The most Base64 text that upload_attachment takes, in characters (relay document, Room attachments).
const UPLOAD_LIMIT_CHARS: usize = 700 * 1024;
/// How much of a text file is shown as its preview, in bytes.
const PREVIEW_BYTES: usize = 1024;

pub(super) const TOOLS: &[Tool] = &[
    Tool {
        name: "list_files",
        title: "List files",
        about: "List stored files visible to the key.",
        access: ToolAccess::Read,
        inputs: &[optional("limit", Integer(1, 200), "How many files to return.")],
        run: list_files,
    },
    Tool {
        name: "read_file",
        title: "Read a file",
        about: "Read a stored file's metadata and preview by SHA-256 hash.",
        access: ToolAccess::Read,
        inputs: &[required("sha256", Hex, "The file's hash.")],
        run: read_file,
    },
    Tool {
        name: "read_attachment",
        title: "Read an attachment",
        about: "Read a stored file by SHA-256 hash. Images and audio return native MCP content; all file types \
                include Base64 data. Reads are limited to 4 MiB.",
        access: ToolAccess::Read,
        inputs: &[
            required("sha256", Hex, "The file's hash."),
            optional("max_bytes", Integer(1, READ_LIMIT_BYTES), "Refuse files larger than this."),
        ],
        run: read_attachment,
    },
    Tool {
        name: "upload_attachment",
        title: "Upload an attachment",
        about: "Upload Base64 file bytes for a room and return a Blossom descriptor with NIP-92 metadata.",
        access: ToolAccess::Store,
        inputs: &[
            required("room", Words(100), "Room id."),
            required("data", Text, "The bytes in standard Base64, up to 700 KiB."),
            required("type", Words(200), "MIME type."),
            optional("filename", Words(200), "Name of the file."),
        ],
        run: upload_attachment,
    },
];

fn descriptor(url: &str, hash: &str, file: &File) -> Value {
    let url = format!("{url}/media/{hash}{}", extension(&file.filename));
    json!({
        "url": url, "sha256": hash, "size": file.bytes.len(), "type": file.media_type,
        "filename": file.filename, "uploaded": file.uploaded,
        "nip94": [["url", url], ["m", file.media_type], ["x", hash], ["size", file.bytes.len().to_string()]],
    })
}

fn extension(filename: &str) -> String {
    filename.rsplit_once('.').map(|(_, extension)| format!(".{extension}")).unwrap_or_default()
}

fn find<'a>(call: &'a Call) -> Result<(&'a str, &'a File), String> {
    let hash = call.arguments.must("sha256");
    let file = call.store.files.get(hash).ok_or_else(|| format!("there is no file {hash}"))?;
    Ok((hash, file))
}

fn list_files(call: &mut Call) -> Result<Outcome, String> {
    let limit = call.arguments.integer("limit").unwrap_or(50) as usize;
    let files: Vec<Value> =
        call.store.files.iter().take(limit).map(|(hash, file)| descriptor(call.url, hash, file)).collect();
    Ok(Outcome::Data(json!({"files": files})))
}

fn read_file(call: &mut Call) -> Result<Outcome, String> {
    let (hash, file) = find(call)?;
    let mut data = descriptor(call.url, hash, file);
    data["room"] = json!(file.room);
    if file.media_type.starts_with("text/") {
        let preview = &file.bytes[..file.bytes.len().min(PREVIEW_BYTES)];
        data["preview"] = String::from_utf8_lossy(preview).into();
    }
    Ok(Outcome::Data(data))
}

fn read_attachment(call: &mut Call) -> Result<Outcome, String> {
    let (hash, file) = find(call)?;
    let limit = call.arguments.integer("max_bytes").unwrap_or(READ_LIMIT_BYTES);
    if file.bytes.len() as i64 > limit {
        return Err(format!("the file has {} bytes, more than the limit of {limit}", file.bytes.len()));
    }
    let encoded = STANDARD.encode(&file.bytes);
    let native = |kind: &str| json!({"type": kind, "data": encoded, "mimeType": file.media_type});
    let block = match file.media_type.split('/').next() {
        Some("image") => native("image"),
        Some("audio") => native("audio"),
        Some("text") => json!({"type": "text", "text": String::from_utf8_lossy(&file.bytes)}),
        _ => json!({"type": "text", "text": format!("{} ({} bytes)", file.filename, file.bytes.len())}),
    };
    let mut data = descriptor(call.url, hash, file);
    data["data"] = encoded.into();
    Ok(Outcome::Blocks(vec![block], data))
}

fn upload_attachment(call: &mut Call) -> Result<Outcome, String> {
    let room = room(call)?.to_owned();
    let encoded = call.arguments.must("data");
    if encoded.len() > UPLOAD_LIMIT_CHARS {
        return Err("argument data is larger than 700 KiB; upload larger files to the room's URL".into());
    }
    let bytes = STANDARD.decode(encoded).map_err(|_| "argument data must be standard Base64")?;
    if bytes.is_empty() {
        return Err("argument data is empty".into());
    }
    let media_type = call.arguments.must("type").to_owned();
    let filename = call.arguments.text("filename").unwrap_or("file").to_owned();
    let hash = call.store.add_file(bytes, &media_type, &filename, Some(&room), call.now);
    Ok(Outcome::Data(descriptor(call.url, &hash, &call.store.files[&hash])))
}
