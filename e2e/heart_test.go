package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"jettison/e2e/vm"
)

// heart is a pod that writes the time into its log every 10 ms. The longest time between two lines
// is the longest pause that the node imposed on an innocent pod.
type heart struct {
	pod    *vm.Pod
	read   int     // bytes of its log
	part   string  // of a line
	stamp  string  // of partial lines
	stamps []int64 // nanoseconds of CLOCK_MONOTONIC, from the start of the last query's interval on
}

// startHeart starts a heart and waits for its first beats.
func (n *node) startHeart() *heart {
	n.t.Helper()
	h := &heart{pod: n.run(vm.NewPod("heart", "16Mi", "", "stamp -every 10ms"))}
	n.until("the heart beats", func() error {
		if n.beats(h); len(h.stamps) < 10 {
			return fmt.Errorf("heart has only %d beats", len(h.stamps))
		}
		return nil
	})
	return h
}

// beats reads the new lines of the heart's log.
func (n *node) beats(h *heart) {
	n.t.Helper()
	text, err := n.ReadFile(n.ctx, h.pod.LogPath("main"), h.read)
	if err != nil {
		n.t.Fatal(err)
	}
	h.read += len(text)
	h.take(string(text))
}

// take adds log lines ("TIME stdout F STAMP") and skips lines without a stamp. It joins partial lines
// (P): CRI-O's conmon writes one wherever its buffer ends.
func (h *heart) take(text string) {
	for line := range strings.Lines(h.part + text) {
		h.part = ""
		if !strings.HasSuffix(line, "\n") {
			h.part = line
			continue
		}
		words := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		if len(words) < 4 {
			continue
		}
		if h.stamp += words[3]; words[2] == "P" {
			continue
		}
		if at, err := strconv.ParseInt(h.stamp, 10, 64); err == nil {
			h.stamps = append(h.stamps, at)
		}
		h.stamp = ""
	}
}

// longest returns the longest time between two beats of which at least one is between two instants.
// It forgets the beats before from.
func (h *heart) longest(from, to int64) (gap time.Duration) {
	keep := 0
	for i := 1; i < len(h.stamps); i++ {
		if h.stamps[i] < from {
			keep = i
		} else if h.stamps[i-1] <= to {
			gap = max(gap, elapsed(h.stamps[i-1], h.stamps[i]))
		}
	}
	h.stamps = h.stamps[keep:]
	return gap
}

// longestGap waits until the heart has beaten after an instant, and returns its longest pause since
// another.
func (n *node) longestGap(h *heart, from, to int64) time.Duration {
	n.t.Helper()
	n.until("the heart beats on", func() error {
		if n.beats(h); len(h.stamps) == 0 || h.stamps[len(h.stamps)-1] <= to {
			return fmt.Errorf("heart has %d beats, none after %d", len(h.stamps), to)
		}
		return nil
	})
	return h.longest(from, to)
}

// monotonic returns the guest's CLOCK_MONOTONIC.
func (n *node) monotonic() int64 {
	n.t.Helper()
	m, err := n.Memory(n.ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	return m.MonotonicNS
}

// The cases have lines in two pieces, lines without stamps, and gaps at both ends.
func TestHeart(t *testing.T) {
	var h heart
	h.take("2026-11-21T07:00:00Z stdout F 100\n2026-11-21T07:00:00Z std")
	h.take("out F 110\nx stderr F workload: trouble\n\nx stdout P 1\nx stdout F 40\nx stdout P 150\nx stdout F \nx stdout F 250\n")
	for _, c := range []struct {
		from, to int64
		want     time.Duration
	}{
		{0, 115, 30},   // 110 to 140, which ends later
		{105, 115, 30}, // the same
		{120, 130, 30}, // within one pause
		{141, 149, 10}, // an ended pause does not count
		{145, 1000, 100},
	} {
		if got := h.longest(c.from, c.to); got != c.want {
			t.Errorf("longest gap between %d and %d = %d, want %d", c.from, c.to, got, c.want)
		}
	}
}
