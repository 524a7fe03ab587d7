//! A bound on how long something may take, whose timer outlives it.
//!
//! The runtime asks the kernel for a new timer whenever one is set that ends before all others. A timer that
//! stays set over many short pieces of work, and is set anew only once it has run out, costs nothing.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep_until};

/// Bounds one piece of work after the other.
#[derive(Default)]
pub struct Watchdog {
    timer: Option<Pin<Box<Sleep>>>,
    has_run_out: bool,
}

impl Watchdog {
    /// The outcome of `work`, or none where `deadline` passed before. What it has left to do is the caller's
    /// to drop.
    pub async fn bound<F: Future>(&mut self, deadline: Instant, mut work: Pin<&mut F>) -> Option<F::Output> {
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending => self.poll_reach(deadline, cx).map(|()| None),
        })
        .await
    }

    fn poll_reach(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            if self.has_run_out || timer.deadline() > deadline {
                if Instant::now() >= deadline {
                    return Poll::Ready(());
                }
                timer.as_mut().reset(deadline);
                self.has_run_out = false;
            }
            ready!(timer.as_mut().poll(cx));
            self.has_run_out = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::pin::pin;
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    #[test]
    fn each_deadline_holds_whatever_the_one_before_was() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let mut watchdog = Watchdog::default();
            for (limit, work) in [(40, 1), (10, 60), (60, 20), (5, 60), (5, 60), (1000, 30), (0, 60)] {
                let limit = Duration::from_millis(limit);
                let (began, is_late) = (Instant::now(), limit < Duration::from_millis(work));
                let outcome = watchdog.bound(began + limit, pin!(sleep(Duration::from_millis(work)))).await;
                assert_eq!(outcome.is_none(), is_late, "{limit:?} for {work} ms");
                assert!(!is_late || began.elapsed() >= limit);
            }
            assert!(watchdog.bound(Instant::now(), pin!(async { 1 })).await.is_some(), "done is done");
            assert!(watchdog.bound(Instant::now(), pin!(pending::<()>())).await.is_none());
        });
    }
}
