//! The queue of spans by itself: bounded, and whatever is lost is counted.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

use super::super::telemetry::{Finished, Tracer};
use crate::config::TelemetrySettings;
use crate::host::Host;
use crate::mcp::trace::TraceParent;

fn settings(sample: f64) -> TelemetrySettings {
    let otlp = Some("http://127.0.0.1:9".parse().unwrap());
    TelemetrySettings { otlp, sample, service: "t".into(), ..TelemetrySettings::default() }
}

async fn tracer(sample: f64) -> std::sync::Arc<Tracer> {
    let host = Host::builder().start().await.unwrap();
    Tracer::new(&settings(sample), &host).unwrap().unwrap()
}

fn over(tracer: &Tracer) -> Finished {
    let made = tracer.make(None).unwrap();
    let (began, took) = (SystemTime::now(), Duration::from_millis(1));
    Finished { made, method: "tools/call", began, took, code: None, cancelled: false, onward: None }
}

#[tokio::test]
async fn l96_spans_that_there_is_no_room_for_are_counted() {
    let tracer = tracer(1.0).await;
    for _ in 0..2048 + 7 {
        tracer.take(over(&tracer));
    }
    assert_eq!(tracer.counts().dropped.load(Relaxed), 7);
    // A collector that is not there: what waited has failed, and the queue is free again.
    tracer.tend();
    tracer.flush().await;
    assert_eq!(tracer.counts().failed.load(Relaxed), 2048);
    assert_eq!(tracer.counts().exported.load(Relaxed), 0);
    tracer.take(over(&tracer));
    assert_eq!(tracer.counts().dropped.load(Relaxed), 7);
}

#[tokio::test]
async fn l96_a_trace_is_recorded_as_its_beginner_wants_it() {
    let parent = |flags| TraceParent { trace: [1; 16], span: [2; 8], flags };
    let never = tracer(0.0).await;
    assert!((0..1000).all(|_| never.make(None).is_none()));
    assert!(never.make(Some(parent(1))).is_some(), "the caller records it");
    let always = tracer(1.0).await;
    assert!((0..1000).all(|_| always.make(None).is_some()));
    assert!(always.make(Some(parent(0))).is_none(), "the caller does not");
    let some = tracer(0.25).await;
    let share = (0..10_000).filter(|_| some.make(None).is_some()).count();
    assert!((2_000..3_000).contains(&share), "{share} of 10000");
}

#[tokio::test]
async fn l96_a_collector_that_may_not_be_reached_keeps_the_gateway_from_starting() {
    let host = Host::builder().start().await.unwrap();
    let mut settings = settings(1.0);
    settings.otlp = Some("http://169.254.169.254".parse().unwrap());
    assert_eq!(Tracer::new(&settings, &host).unwrap_err().kind(), "denied");
    settings.otlp = None;
    assert!(Tracer::new(&settings, &host).unwrap().is_none());
}
