//! A token bucket: how many events, or proofs, a minute.
//!
//! It counts by the monotonic clock, so that nobody who sets the time gains anything.

use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// Allows at most a number of things in any one go, and refills that many in a minute.
pub struct Bucket {
    per_minute: u32,
    tokens: f64,
    counted_at: Instant,
}

impl Bucket {
    /// A full bucket.
    pub fn new(per_minute: u32, now: Instant) -> Self {
        Self { per_minute, tokens: f64::from(per_minute), counted_at: now }
    }

    /// The rate that it was made for.
    pub fn per_minute(&self) -> u32 {
        self.per_minute
    }

    /// Takes one, or says how long until there is one.
    pub fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let rate = f64::from(self.per_minute) / MINUTE.as_secs_f64();
        let passed = now.saturating_duration_since(self.counted_at).as_secs_f64();
        self.tokens = (self.tokens + passed * rate).min(f64::from(self.per_minute));
        self.counted_at = now;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        // A rate of none never refills; the longest wait says so without an overflow.
        let wait = if rate > 0.0 { (1.0 - self.tokens) / rate } else { f64::MAX };
        Err(Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_past_the_rate_waits_and_is_allowed_after_the_wait() {
        let start = Instant::now();
        let mut bucket = Bucket::new(3, start);
        for _ in 0..3 {
            assert_eq!(bucket.take(start), Ok(()));
        }
        let wait = bucket.take(start).unwrap_err();
        assert!(wait <= Duration::from_secs(20) && wait > Duration::from_secs(19), "{wait:?}");
        assert!(bucket.take(start + wait / 2).is_err());
        assert_eq!(bucket.take(start + wait + Duration::from_millis(1)), Ok(()));
        assert!(bucket.take(start + wait + Duration::from_millis(1)).is_err());
    }

    #[test]
    fn waiting_long_fills_no_more_than_one_minute_s_worth() {
        let start = Instant::now();
        let mut bucket = Bucket::new(2, start);
        let later = start + Duration::from_secs(3600);
        assert_eq!((bucket.take(later), bucket.take(later)), (Ok(()), Ok(())));
        assert!(bucket.take(later).is_err());
    }

    #[test]
    fn a_rate_of_none_allows_none() {
        assert!(Bucket::new(0, Instant::now()).take(Instant::now()).is_err());
    }
}
