package cluster

import (
	"testing"
	"time"
)

var t0 = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// A failed write is retried after a time that doubles up to the maximum. A successful one may be
// repeated immediately.
func TestAttemptBacksOff(t *testing.T) {
	var a Attempt
	if a.Failed() || !a.Next(t0).Equal(t0) {
		t.Errorf("zero value: failed %t, next %v, want no failure and %v", a.Failed(), a.Next(t0), t0)
	}
	now := t0
	for i, want := range []time.Duration{250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000, 30000, 30000, 30000} {
		want *= time.Millisecond
		if !a.Begin(now) || a.Begin(now) || !a.Next(now).IsZero() {
			t.Fatalf("failure %d: want one write to begin, and none while it is in flight", i)
		}
		a.End(now, false)
		if next := a.Next(now); !a.Failed() || !next.Equal(now.Add(want)) {
			t.Fatalf("failure %d: failed %t, next after %v, want %v", i, a.Failed(), next.Sub(now), want)
		}
		if a.Begin(now.Add(want - 1)) {
			t.Fatalf("failure %d: the write begins before its backoff of %v has passed", i, want)
		}
		if now = now.Add(want); !a.Next(now.Add(1)).Equal(now.Add(1)) {
			t.Fatalf("failure %d: next %v after the backoff, want the present", i, a.Next(now.Add(1)))
		}
	}
	if !a.Begin(now) {
		t.Fatal("the write does not begin when its backoff has passed")
	}
	if a.End(now, true); a.Failed() || !a.Begin(now) {
		t.Errorf("after a success: failed %t, want a write that may begin", a.Failed())
	}
}

// A bucket hands out one token for each interval and saves none.
func TestBucketLimitsRate(t *testing.T) {
	b := NewBucket(t0, 2, time.Time{})
	for i, c := range []struct {
		at   time.Duration
		want bool
	}{{0, true}, {0, false}, {500*time.Millisecond - 1, false}, {500 * time.Millisecond, true}, {time.Hour, true}, {time.Hour, false}} {
		if got := b.Take(t0.Add(c.at)); got != c.want {
			t.Errorf("token %d at %v: taken %t, want %t", i, c.at, got, c.want)
		}
	}
	if b = NewBucket(t0, 2, t0); b.Take(t0) || !b.NextToken(t0).Equal(t0.Add(500*time.Millisecond)) {
		t.Errorf("bucket with a last token: next token %v, want one interval later", b.NextToken(t0))
	}
	if b = NewBucket(t0, 1e-12, time.Time{}); !b.Take(t0) || b.Take(t0.Add(time.Hour)) {
		t.Error("bucket with a very low rate: want one token only")
	}
}

// The tokens from now on are an interval apart. A bucket without a limit has them all now, one with
// rate 0 never.
func TestTokensToCome(t *testing.T) {
	for name, c := range map[string]struct {
		rate  float64
		last  time.Time
		now   time.Time
		first time.Time
		third time.Time
	}{
		"first token now":   {2, time.Time{}, t0, t0, t0.Add(time.Second)},
		"first token later": {2, t0, t0, t0.Add(time.Second / 2), t0.Add(3 * time.Second / 2)},
		"token was due":     {2, time.Time{}, t0.Add(time.Hour), t0.Add(time.Hour), t0.Add(time.Hour + time.Second)},
		"no limit":          {NoLimit, t0, t0, t0, t0},
		"above no limit":    {NoLimit + 1, t0, t0, t0, t0},
		"rate 0":            {0, time.Time{}, t0, time.Time{}, time.Time{}},
		"negative rate":     {-1, t0, t0, time.Time{}, time.Time{}},
	} {
		b := NewBucket(t0, c.rate, c.last)
		if first, third := b.NextToken(c.now), b.NthToken(c.now, 3); !first.Equal(c.first) || !third.Equal(c.third) {
			t.Errorf("%s: first token %v, third %v, want %v and %v", name, first, third, c.first, c.third)
		}
		if got := b.Take(c.now); got != c.first.Equal(c.now) {
			t.Errorf("%s: taken %t, want %t", name, got, c.first.Equal(c.now))
		}
	}
}

// Only a bucket that had a token has one right after a change of its rate. The same rate is no
// change.
func TestRateChanges(t *testing.T) {
	take := func(b *Bucket) { b.Take(t0) }
	for name, c := range map[string]struct {
		from, to float64
		before   func(*Bucket)
		next     time.Duration // after the change
	}{
		"with a token":                {1, 2, func(*Bucket) {}, 0},
		"empty":                       {1, 2, take, 500 * time.Millisecond},
		"the same rate":               {1, 1, take, time.Second},
		"from 0":                      {0, 1, func(*Bucket) {}, time.Second},
		"from 0, after a restart":     {0, 1, func(b *Bucket) { b.Restart(t0) }, time.Second},
		"by way of 0":                 {1, 1, func(b *Bucket) { b.SetRate(t0, 0) }, time.Second},
		"without a limit before":      {NoLimit, 1, take, 0},
		"without a limit, restarted":  {NoLimit, 1, func(b *Bucket) { b.Restart(t0) }, 0},
		"restarted":                   {1, 2, func(b *Bucket) { b.Restart(t0) }, 500 * time.Millisecond},
		"to no limit":                 {1, NoLimit, take, 0},
		"restarted before the change": {1, 1, func(b *Bucket) { b.Restart(t0.Add(-time.Second / 2)) }, time.Second / 2},
	} {
		b := NewBucket(t0, c.from, time.Time{})
		c.before(b)
		if b.SetRate(t0, c.to); !b.NextToken(t0).Equal(t0.Add(c.next)) || b.Rate() != c.to {
			t.Errorf("%s: rate %v, next token after %v, want %v after %v", name, b.Rate(), b.NextToken(t0).Sub(t0), c.to, c.next)
		}
	}
}

// A restart delays the next token, and never makes it earlier.
func TestRestartDelays(t *testing.T) {
	b := NewBucket(t0, 1, t0.Add(time.Minute))
	if b.Restart(t0); !b.NextToken(t0).Equal(t0.Add(61 * time.Second)) {
		t.Errorf("next token after %v, want 61s", b.NextToken(t0).Sub(t0))
	}
}

// A waiting caller that is late gets up to maxCredit back.
func TestWaitingCallerGetsCredit(t *testing.T) {
	for _, c := range []struct {
		waiting    bool
		late, want time.Duration
	}{
		{false, time.Second, time.Second}, {true, 10 * time.Millisecond, 0}, {true, maxCredit, 0}, {true, time.Second, time.Second - maxCredit},
	} {
		b := NewBucket(t0, 1, time.Time{})
		b.SetWaiting(c.waiting)
		at := t0.Add(c.late)
		if b.Take(at); !b.NextToken(at).Equal(t0.Add(c.want + time.Second)) {
			t.Errorf("waiting %t, %v late: next token after %v, want %v", c.waiting, c.late, b.NextToken(at).Sub(t0), c.want+time.Second)
		}
	}
}

// Events are sorted by object, reason and message. The object of a node has no namespace.
func TestEventsAreSorted(t *testing.T) {
	events := []Event{{Kind: "Pod", Namespace: "x", Name: "a"}, {Kind: "Node", Name: "n", Reason: "B"},
		{Kind: "Node", Name: "n", Reason: "A", Message: "b"}, {Kind: "Node", Name: "n", Reason: "A", Message: "a"}}
	SortEvents(events)
	for i, want := range []string{"Node/nAa", "Node/nAb", "Node/nB", "Pod/x/a"} {
		if got := events[i].Object() + events[i].Reason + events[i].Message; got != want {
			t.Errorf("event %d = %s, want %s", i, got, want)
		}
	}
}

// The zero time means none: any other time is earlier.
func TestEarliest(t *testing.T) {
	later := t0.Add(1)
	for _, c := range []struct{ at, other, want time.Time }{
		{time.Time{}, t0, t0}, {t0, time.Time{}, t0}, {t0, later, t0}, {later, t0, t0}, {time.Time{}, time.Time{}, time.Time{}},
	} {
		got := c.at
		if Earliest(&got, c.other); !got.Equal(c.want) {
			t.Errorf("earliest of %v and %v = %v, want %v", c.at, c.other, got, c.want)
		}
	}
}
