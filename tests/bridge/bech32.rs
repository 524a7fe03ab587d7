//! Bech32 (BIP 173) and Bech32m (BIP 350) as the tests write them, so that a mistake of the product's own
//! decoder is not repeated here. It only writes.

/// What the checksum is xored with: Bech32's constant.
pub const BECH32: u32 = 1;
/// Bech32m's constant.
pub const BECH32M: u32 = 0x2bc8_30a3;

const CHARACTERS: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";

/// The text of these bytes under this prefix.
pub fn encode(prefix: &str, bytes: &[u8], constant: u32) -> String {
    let (mut bits, mut count, mut values) = (0_u32, 0, Vec::new());
    for byte in bytes {
        bits = (bits << 8) | u32::from(*byte);
        count += 8;
        while count >= 5 {
            count -= 5;
            values.push((bits >> count) as u8 & 31);
        }
    }
    if count > 0 {
        values.push((bits << (5 - count)) as u8 & 31);
    }
    let expanded = prefix.bytes().map(|b| b >> 5).chain([0]).chain(prefix.bytes().map(|b| b & 31));
    let checksum = expanded.chain(values.iter().copied()).chain([0; 6]).fold(1, step) ^ constant;
    values.extend((0..6).rev().map(|at| (checksum >> (5 * at)) as u8 & 31));
    let data = values.iter().map(|value| char::from(CHARACTERS[usize::from(*value)]));
    format!("{prefix}1{}", data.collect::<String>())
}

/// One step of the checksum's polynomial division (BIP 173).
fn step(checksum: u32, value: u8) -> u32 {
    const GENERATOR: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
    let top = checksum >> 25;
    let next = ((checksum & 0x1ff_ffff) << 5) ^ u32::from(value);
    (0..5).filter(|at| top >> at & 1 == 1).fold(next, |sum, at| sum ^ GENERATOR[at])
}

#[test]
fn the_example_of_nip_19_comes_out_as_printed_there() {
    let hex = "67dea2ed018072d675f5415ecfaed7d2597555e202d85b3d65ea4e58d2d92ffa";
    let bytes: [u8; 32] = tinyagent_relay::unhex(hex).expect("hex");
    assert_eq!(
        encode("nsec", &bytes, BECH32),
        "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5"
    );
}
