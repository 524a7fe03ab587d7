//! The two written forms of a secret key, decoded straight into the place where it will stay.
//!
//! Neither decoder allocates, so no copy of the key is left on the heap.

use bech32::Bech32;
use bech32::primitives::decode::UncheckedHrpstring;

use super::fault::KeyFault;

/// The order of secp256k1, big-endian (SEC 2, section 2.4.1); a key is below it.
const CURVE_ORDER: [u8; 32] = secp256k1::constants::CURVE_ORDER;

/// Decodes 64 hexadecimal characters (either case) or an nsec (NIP-19) into `scalar`, and checks
/// that it is a key: neither zero nor past the curve order.
pub fn decode(text: &[u8], scalar: &mut [u8; 32]) -> Result<(), KeyFault> {
    if text.is_empty() {
        return Err(KeyFault::NotSet);
    }
    if text.windows(2).any(|pair| pair == b"${") {
        return Err(KeyFault::Placeholder);
    }
    let begins =
        |prefix: &str| text.get(..prefix.len()).is_some_and(|t| t.eq_ignore_ascii_case(prefix.as_bytes()));
    if begins("npub1") {
        return Err(KeyFault::PublicKey);
    }
    if begins("ncryptsec1") {
        return Err(KeyFault::Encrypted);
    }
    if is_padding(text[0]) || is_padding(text[text.len() - 1]) {
        return Err(KeyFault::Padded);
    }
    if begins("nsec1") {
        decode_nsec(text, scalar)?;
    } else {
        decode_hex(text, scalar)?;
    }
    if scalar.iter().all(|byte| *byte == 0) {
        return Err(KeyFault::Zero);
    }
    if *scalar >= CURVE_ORDER {
        return Err(KeyFault::OutOfRange);
    }
    Ok(())
}

fn is_padding(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == b'"' || byte == b'\''
}

fn decode_hex(text: &[u8], scalar: &mut [u8; 32]) -> Result<(), KeyFault> {
    if !text.iter().all(u8::is_ascii_hexdigit) {
        return Err(KeyFault::Unknown);
    }
    if text.len() != 64 {
        return Err(KeyFault::HexLength(text.len()));
    }
    for (byte, pair) in scalar.iter_mut().zip(text.chunks_exact(2)) {
        *byte = hex_digit(pair[0]) << 4 | hex_digit(pair[1]);
    }
    Ok(())
}

/// The value of a character that is known to be a hexadecimal digit, by arithmetic alone.
fn hex_digit(character: u8) -> u8 {
    (character & 0x0f) + 9 * (character >> 6)
}

fn decode_nsec(text: &[u8], scalar: &mut [u8; 32]) -> Result<(), KeyFault> {
    let text = std::str::from_utf8(text).map_err(|_| KeyFault::NotBech32)?;
    let unchecked = UncheckedHrpstring::new(text).map_err(|_| KeyFault::NotBech32)?;
    if !unchecked.has_valid_checksum::<Bech32>() {
        return Err(KeyFault::Checksum);
    }
    let checked = unchecked.remove_checksum::<Bech32>();
    // The separator is the last `1`, so the prefix may be longer than what the text begins with.
    if !checked.hrp().as_str().eq_ignore_ascii_case("nsec") {
        return Err(KeyFault::Unknown);
    }
    let bytes = checked.byte_iter();
    if bytes.len() != scalar.len() || checked.validate_segwit_padding().is_err() {
        return Err(KeyFault::NsecLength);
    }
    for (place, byte) in scalar.iter_mut().zip(bytes) {
        *place = byte;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of NIP-19.
    const NSEC: &str = "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5";
    const HEX: &str = "67dea2ed018072d675f5415ecfaed7d2597555e202d85b3d65ea4e58d2d92ffa";

    fn decoded(text: &str) -> Result<[u8; 32], KeyFault> {
        let mut scalar = [0; 32];
        decode(text.as_bytes(), &mut scalar).map(|()| scalar)
    }

    #[test]
    fn hex_in_either_case_and_nsec_give_the_same_key() {
        let scalar = decoded(NSEC).unwrap();
        assert_eq!(scalar[..4], [0x67, 0xde, 0xa2, 0xed]);
        assert_eq!(decoded(HEX).unwrap(), scalar);
        assert_eq!(decoded(&HEX.to_uppercase()).unwrap(), scalar);
        assert_eq!(decoded(&NSEC.to_uppercase()).unwrap(), scalar);
    }

    #[test]
    fn every_wrong_form_is_named_and_never_echoed() {
        let order = "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141";
        let last_changed = format!("{}q", &NSEC[..NSEC.len() - 1]);
        let mixed = NSEC.replace("vl", "vL");
        let cases = [
            ("", "is not set"),
            ("${TINY_PRIVATE_KEY}", "placeholder"),
            ("${env:TINY_PRIVATE_KEY}", "placeholder"),
            (&HEX[1..], "63 hexadecimal"),
            (&format!("{HEX}0"), "65 hexadecimal"),
            (&"0".repeat(64), "zero"),
            (order, "order"),
            (&"f".repeat(64), "order"),
            (&format!("x{}", &HEX[1..]), "neither"),
            (&last_changed, "checksum"),
            (&NSEC[..NSEC.len() - 1], "checksum"),
            (&mixed, "mixed"),
            (&NSEC.replace('v', "b"), "character is wrong"),
            ("npub10elfcs4fr0l0r8af98jlmgdh9c8tcxjvz9qkw038js35mp4dma8qzvjptg", "npub"),
            (&format!(" {HEX}"), "white space"),
            (&format!("{HEX}\n"), "white space"),
            (&format!("\"{HEX}\""), "quotes"),
            ("hunter2hunter2", "neither"),
            ("nsec1", "checksum"),
        ];
        for (text, said) in cases {
            let message = decoded(text).unwrap_err().to_string();
            assert!(message.contains(said), "{text:?} gave {message:?}");
            assert!(text.is_empty() || text == "nsec1" || !message.contains(text), "echoed: {message:?}");
        }
    }

    #[test]
    fn one_below_the_order_is_a_key() {
        assert!(decoded("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364140").is_ok());
        assert!(decoded(&format!("{}1", "0".repeat(63))).is_ok());
    }
}
