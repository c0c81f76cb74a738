package read

import (
	"testing"
	"time"

	"jettison/stats"
)

// The share of time stalled is the difference of totals over an observed window, and absent
// without it.
func TestShareOfTimeStalled(t *testing.T) {
	var h stallHistory
	at, total := time.Unix(1000, 0), time.Duration(0)
	look := func(after, stalled time.Duration) (stats.StallShare, stats.StallShare) {
		at, total = at.Add(after), total+stalled
		return h.add(at, &stats.PSIStats{HasSome: true, HasFull: true, Some: stats.PSIData{Total: total}, Full: stats.PSIData{Total: total / 2}})
	}
	if some, full := look(0, 0); some.Over1s.OK || full.Over1s.OK {
		t.Error("share is present without a sample")
	}
	for range 9 {
		if some, _ := look(100*time.Millisecond, 50*time.Millisecond); some.Over1s.OK {
			t.Error("share over one second is present too early")
		}
	}
	some, full := look(100*time.Millisecond, 50*time.Millisecond)
	if !some.Over1s.OK || some.Over1s.V != 0.5 || full.Over1s.V != 0.25 || some.Over10s.OK {
		t.Errorf("shares after a second stalled half the time = %+v, %+v", some, full)
	}
	for range 100 {
		some, _ = look(100*time.Millisecond, 0)
	}
	if some.Over1s.V != 0 || !some.Over10s.OK || some.Over10s.V != 0 {
		t.Errorf("shares after ten seconds without stalls = %+v", some)
	}
	for range 20 {
		some, _ = look(100*time.Millisecond, 100*time.Millisecond)
	}
	if some.Over1s.V != 1 || some.Over10s.V < 0.19 || some.Over10s.V > 0.21 {
		t.Errorf("shares after two seconds of full stall = %+v", some)
	}
	if some, _ = look(time.Minute, time.Second); some.Over1s.OK || some.Over10s.OK {
		t.Errorf("share over one second after a minute's gap = %+v, want absent", some)
	}
	// Looks far more frequent than the ring has samples for.
	for range 20000 {
		some, _ = look(time.Millisecond, 500*time.Microsecond)
	}
	if !some.Over10s.OK || some.Over10s.V < 0.49 || some.Over10s.V > 0.51 {
		t.Errorf("shares with a look each millisecond = %+v", some)
	}
	at, total = at.Add(-time.Hour), 0
	if some, _ = look(0, 0); some.Over1s.OK {
		t.Error("shares are present after the clock was set back")
	}
}
