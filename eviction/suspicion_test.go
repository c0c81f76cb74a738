package eviction

import (
	"math"
	"slices"
	"testing"
	"time"

	"jettison/stats"
)

// A disk is urgent if it will be full within 10 s by two observations that are near each other, or
// if nearly nothing is left. A burst between two observations and an old observation do not count.
func TestFillRateShowsUrgency(t *testing.T) {
	type look struct {
		at   time.Duration
		left uint64
	}
	for _, c := range []struct {
		name  string
		looks []look
		want  bool
	}{
		{"first observation", []look{{0, 9 * gib}}, false},
		{"nearly nothing left", []look{{0, 319 << 20}}, false},
		{"nearly nothing left, for long", []look{{0, 319 << 20}, {freshLimit, 319 << 20}}, true},
		{"a burst just now", []look{{0, 20 * gib}, {time.Second, 9 * gib}}, false},
		{"1 GiB/s", []look{{0, 12 * gib}, {time.Second, 11 * gib}, {2 * time.Second, 10 * gib}, {3 * time.Second, 9 * gib}}, true},
		{"200 MiB/s", []look{{0, 10 * gib}, {time.Second, 10*gib - 200<<20}, {2 * time.Second, 10*gib - 400<<20}}, false},
		{"200 MiB/s, near the end", []look{{0, 2300 << 20}, {time.Second, 2100 << 20}, {2 * time.Second, 1900 << 20}}, true},
		{"a burst, long ago", []look{{0, 40 * gib}, {time.Second, 9 * gib}, {4 * time.Second, 9 * gib}, {7 * time.Second, 9 * gib}}, false},
		{"no observation meanwhile", []look{{0, 40 * gib}, {time.Minute, 5 * gib}}, false},
		{"it rises", []look{{0, 5 * gib}, {2 * time.Second, 6 * gib}}, false},
		{"not short", []look{{0, 40 * gib}, {2 * time.Second, 20 * gib}}, false},
		{"clock set back", []look{{time.Hour, 40 * gib}, {0, 9 * gib}, {2 * time.Second, 5 * gib}}, true},
	} {
		m := explainer(t)
		for _, l := range c.looks {
			in := disks(epoch.Add(l.at), l.left, nil)
			m.Observe(epoch.Add(l.at), &in.Summary.Node, Situation{})
		}
		if got := m.explain.rates.urgent(&m.watch.all[0]); got != c.want {
			t.Errorf("%s: urgent = %v, want %v", c.name, got, c.want)
		}
	}
}

// After a restart the delay since the last eviction by suspicion continues. Implausible saved values
// delay no longer than the longest delay.
func TestRestartKeepsSuspicionDelay(t *testing.T) {
	m := explainer(t)
	pods := map[string]uint64{"a": 20 * gib, "b": 15 * gib}
	quietAt(m, epoch, 60*gib, pods)
	at := epoch.Add(time.Minute)
	shortAt(m, at, 5*gib, pods)
	at = at.Add(suspectDelay)
	d := shortAt(m, at, 5*gib, pods)
	if len(d.Evictions) != 1 || !d.Evictions[0].suspected {
		t.Fatalf("%d evictions after the delay, want one by suspicion: %s", len(d.Evictions), d.Reason)
	}
	m.Begin(Stamp{Time: at}, d.Evictions[0], d.Signal)
	saved := m.Save()
	saved.Lives = nil // its pod is not restored here
	restored := explainer(t)
	if dropped := restored.Resume(at, throughFile(t, saved)); len(dropped) > 0 {
		t.Errorf("Resume dropped %v, want nothing", dropped)
	}
	at = at.Add(time.Second)
	if uid, after := firstEviction(restored, at, time.Hour, 5*gib, map[string]uint64{"b": 15 * gib}, ""); uid != "b" || after != 2*suspectDelay {
		t.Errorf("victim after a restart = %q after %v, want b after %v", uid, after, 2*suspectDelay)
	}
	far := explainer(t)
	far.Resume(at, Saved{Suspicions: []SavedSuspicion{{FileSystem: "nodefs", Hard: true, Last: at.Add(time.Hour), DelaySeconds: math.MaxInt64}, {FileSystem: "/"}}})
	if b := far.explain.backoffs.of(nodeFs, true); !b.last.Equal(at) || b.wait() != suspectDelayMax {
		t.Errorf("restored delay = %v since %v, want %v since %v", b.wait(), b.last, suspectDelayMax, at)
	}
}

// A layout that stays unknown delays an eviction by the same time, and until the disk is nearly full:
// then all file systems count as one.
func TestUnknownLayoutDelaysEviction(t *testing.T) {
	for left, want := range map[uint64]time.Duration{5 * gib: 0, 300 << 20: suspectDelay} {
		m := explainer(t)
		evicted := time.Duration(0)
		for after := time.Duration(0); after <= 2*suspectDelay && evicted == 0; after += 20 * time.Second {
			in := disks(epoch.Add(after), left, map[string]uint64{"a": 20 * gib})
			in.Summary.Node.Layout = stats.Opt[stats.Layout]{}
			m.Observe(epoch.Add(after), &in.Summary.Node, Situation{})
			if d := m.Step(epoch.Add(after), in); len(d.Evictions) > 0 {
				evicted = after
			}
		}
		if evicted != want {
			t.Errorf("%d bytes left: evicted after %v, want %v (0: not)", left, evicted, want)
		}
	}
}

// Writes that explain a shortage, and a disk that is urgent, end the delay, but not the pause after
// an eviction by suspicion. A hard threshold does not wait for the victim of a soft one, nor for that
// of another disk.
func TestSuspicionDeadline(t *testing.T) {
	now := epoch.Add(time.Hour)
	for _, c := range []struct {
		name           string
		softly, firmly suspectBackoff // for the same disk
		elsewhere      suspectBackoff // hard
		soft, early    bool
		want           time.Duration // from now
	}{
		{name: "first", want: suspectDelay},
		{name: "written or urgent", early: true},
		{name: "after an eviction", firmly: suspectBackoff{last: now.Add(-time.Second)}, want: suspectDelay},
		{name: "early, after an eviction", firmly: suspectBackoff{last: now.Add(-time.Second)}, early: true, want: suspectDelay - time.Second},
		{name: "early, after three", firmly: suspectBackoff{last: now, delay: 4 * suspectDelay}, early: true, want: 4 * suspectDelay},
		{name: "hard after soft", softly: suspectBackoff{last: now, delay: 8 * suspectDelay}, early: true},
		{name: "soft after soft", softly: suspectBackoff{last: now}, soft: true, early: true, want: suspectDelay},
		{name: "soft after hard", firmly: suspectBackoff{last: now, delay: 2 * suspectDelay}, soft: true, early: true, want: 2 * suspectDelay},
		{name: "hard after another disk", elsewhere: suspectBackoff{last: now, delay: 8 * suspectDelay}, early: true},
		{name: "clock set back", firmly: suspectBackoff{last: now.Add(time.Hour)}, early: true},
	} {
		var b suspectBackoffs
		*b.of(nodeFs, false), *b.of(nodeFs, true), *b.of(imageFs, true) = c.softly, c.firmly, c.elsewhere
		if got := b.deadline(now, &doubt{since: now}, nodeFs, !c.soft, c.early); !got.Equal(now.Add(c.want)) {
			t.Errorf("%s: deadline after %v, want %v", c.name, got.Sub(now), c.want)
		}
	}
}

// Evictions that did not help show nothing about a pod whose growth is unknown: the open breaker
// allows its eviction, but not that of a pod that is shown idle.
func TestOpenBreakerAllowsSuspects(t *testing.T) {
	for _, atLeast := range []string{"", "b"} {
		m := explainer(t)
		m.config.Breaker = true
		pods := map[string]uint64{"a": 20 * gib, "b": 15 * gib}
		quietAt(m, epoch, 60*gib, pods)
		w := &m.watch.all[0]
		m.breakers.byThreshold[w.key()] = breaker{futile: breakerLimit}
		uid, _ := firstEviction(m, epoch.Add(time.Minute), time.Hour, 5*gib, pods, atLeast)
		if uid != atLeast {
			t.Errorf("victim = %q, want %q", uid, atLeast)
		}
	}
}

// Replacements of futile victims are unknown too, and come first. The open breaker allows the eviction
// of the pod behind them that may have filled the disk. It allows none if there is no other such pod.
func TestOpenBreakerLooksBehindReplacements(t *testing.T) {
	for _, filler := range []bool{true, false} {
		m := explainer(t)
		m.config.Breaker = true
		quietAt(m, epoch, 60*gib, map[string]uint64{"idle": 5 * gib, "idle-2": 5 * gib, "web": 0, "filler": 0})
		w := &m.watch.all[0]
		m.breakers.byThreshold[w.key()] = breaker{futile: breakerLimit, futileReturns: map[string]uint64{"shop/web-7d4f9": 20 * gib},
			usageAtOpen: map[string]uint64{"idle": 5 * gib, "idle-2": 5 * gib, "filler": 10 * gib}, atOpen: podTotals{at: epoch, left: 5 * gib}}
		victim := ""
		for after := time.Minute; after < 10*time.Minute && victim == ""; after += 20 * time.Second {
			in := disks(epoch.Add(after), 5*gib, map[string]uint64{"idle": 5 * gib, "idle-2": 5 * gib, "filler": 10 * gib, "web": 20 * gib})
			for i := range in.Summary.Pods {
				p := &in.Summary.Pods[i]
				p.PodRef.Namespace, p.PodRef.Name = "shop", map[string]string{"web": "web-7d4f9-bcdfg"}[p.PodRef.UID]
				if p.PodRef.UID == "web" || filler && p.PodRef.UID == "filler" {
					p.Containers[0].Rootfs.V.Partial = true
					continue
				}
				p.Containers[0].Rootfs.V.UsedBytes = 5 * gib
			}
			if !filler {
				in.Summary.Pods = slices.DeleteFunc(in.Summary.Pods, func(p stats.PodStats) bool { return p.PodRef.UID == "filler" })
			}
			m.Observe(epoch.Add(after), &in.Summary.Node, Situation{})
			m.Step(epoch.Add(after), in)
			if d := m.StepAfterReclaim(epoch.Add(after), in); len(d.Evictions) > 0 {
				victim = d.Evictions[0].Pod.PodRef.UID
			}
		}
		if want := map[bool]string{true: "filler"}[filler]; victim != want {
			t.Errorf("filler %v: victim = %q, want %q", filler, victim, want)
		}
	}
}

// A victim that survives its kill is killed again only after the delay.
func TestUndyingVictimIsDelayedToo(t *testing.T) {
	m := explainer(t)
	pods := map[string]uint64{"a": 15 * gib}
	quietAt(m, epoch, 90*gib, pods)
	at := epoch.Add(time.Minute)
	shortAt(m, at, 5*gib, pods)
	began := at.Add(suspectDelay)
	d := shortAt(m, began, 5*gib, pods)
	if len(d.Evictions) != 1 {
		t.Fatalf("%d evictions after the delay, want one: %s", len(d.Evictions), d.Reason)
	}
	l := m.Begin(Stamp{Time: began}, d.Evictions[0], d.Signal)
	m.Killed(Stamp{Time: began}, l)
	at = began.Add(DieLimit)
	m.MarkUndying(at, l)
	uid, after := firstEviction(m, at, time.Hour, 5*gib, pods, "")
	if again := at.Add(after).Sub(began); uid != "a" || again < suspectDelay {
		t.Errorf("%q evicted again after %v, want a after at least %v", uid, again, suspectDelay)
	}
}
