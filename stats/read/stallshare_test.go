package read

import (
	"testing"
	"time"

	"jettison/stats"
)

// The share of time stalled is the delta of the total over a window that was watched, and absent without it.
func TestTheShareOfTimeStalled(t *testing.T) {
	var h stallHistory
	at, total := time.Unix(1000, 0), time.Duration(0)
	look := func(after, stalled time.Duration) (stats.StallShare, stats.StallShare) {
		at, total = at.Add(after), total+stalled
		return h.add(at, &stats.PSIStats{HasSome: true, HasFull: true, Some: stats.PSIData{Total: total}, Full: stats.PSIData{Total: total / 2}})
	}
	if some, full := look(0, 0); some.Over1s.OK || full.Over1s.OK {
		t.Error("nothing was watched yet")
	}
	for range 9 {
		if some, _ := look(100*time.Millisecond, 50*time.Millisecond); some.Over1s.OK {
			t.Error("less than a second was watched")
		}
	}
	some, full := look(100*time.Millisecond, 50*time.Millisecond)
	if !some.Over1s.OK || some.Over1s.V != 0.5 || full.Over1s.V != 0.25 || some.Over10s.OK {
		t.Errorf("after a second of half: %+v, %+v", some, full)
	}
	for range 100 {
		some, _ = look(100*time.Millisecond, 0)
	}
	if some.Over1s.V != 0 || !some.Over10s.OK || some.Over10s.V != 0 {
		t.Errorf("after ten seconds of rest: %+v", some)
	}
	for range 20 {
		some, _ = look(100*time.Millisecond, 100*time.Millisecond)
	}
	if some.Over1s.V != 1 || some.Over10s.V < 0.19 || some.Over10s.V > 0.21 {
		t.Errorf("after two seconds of nothing else: %+v", some)
	}
	if some, _ = look(time.Minute, time.Second); some.Over1s.OK || some.Over10s.OK {
		t.Errorf("a minute says nothing of its last second: %+v", some)
	}
	// Looks much more often than the ring has room for.
	for range 20000 {
		some, _ = look(time.Millisecond, 500*time.Microsecond)
	}
	if !some.Over10s.OK || some.Over10s.V < 0.49 || some.Over10s.V > 0.51 {
		t.Errorf("a look each millisecond: %+v", some)
	}
	at, total = at.Add(-time.Hour), 0
	if some, _ = look(0, 0); some.Over1s.OK {
		t.Error("a clock that went back")
	}
}
