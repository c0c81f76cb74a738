package eviction

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"jettison/stats"
)

var phaseWords = [...]string{Stopping: "stopping", Killed: "killed", Emptied: "emptied", Cleaned: "cleaned", Over: "over", Undying: "undying"}

// ask runs the script commands that query the manager.
func (s *script) ask(cmd string, now time.Time, args map[string]string) (string, error) {
	var b strings.Builder
	switch cmd {
	case "ready":
		in := Input{Summary: &stats.Summary{Time: now}}
		if err := s.look(&in, now, args); err != nil {
			return "", err
		}
		_, again := args["again"]
		_, limited := args["limited"]
		_, recording := args["recording"]
		var r Ready
		if again {
			r = s.m.Ready(now)
		} else {
			r = s.m.Observe(now, &in.Summary.Node, Situation{ObserveDisks: in.ObserveDisks, Limited: limited, Recording: recording})
		}
		b.WriteString(r.text(now))
		if _, ok := args["advance"]; ok {
			s.m.Acknowledge()
		}
	case "need":
		for signal := range args {
			if signal == "t" {
				continue
			}
			n := s.m.Need(now, stats.Signal(signal))
			fmt.Fprintf(&b, "available %s, hard %s, soft %s, grace %v %v, margin %v, keep %s of swap\n", bytesQuantity(n.Available), bytesQuantity(n.Hard.V), bytesQuantity(n.Soft.V),
				n.Grace.OK, n.Grace.V, n.Margin, bytesQuantity(n.SwapKeep))
		}
	case "signals":
		for _, o := range s.m.Signals() {
			fmt.Fprintf(&b, "%s %v %s %v\n", o.Signal, o.Observed.OK, o.Observed.Reason, o.Thresholds)
		}
	case "lost":
		for _, l := range s.m.Lost(now) {
			fmt.Fprintf(&b, "%s: %s\n", l.Signal, l.Reason)
		}
	case "relief":
		b.WriteString([]string{"decide", "begin a pass", "wait"}[s.m.Relief(now, &s.last)])
	case "relieved":
		s.m.Relieved(now)
	case "lives":
		for _, l := range s.m.Lives() {
			fmt.Fprintf(&b, "%s %s, leaving %v\n", l.e.Pod.PodRef.UID, phaseWords[l.Phase()], l.CleaningUp())
		}
	}
	return cmp.Or(strings.TrimSuffix(b.String(), "\n"), "nothing") + "\n", nil
}

// text writes a Ready for the scripts, without the values of a calm node.
func (r *Ready) text(now time.Time) string {
	var b strings.Builder
	b.WriteString(Decision{Time: now, Met: r.Met, Conditions: r.Conditions}.text(true))
	say := func(is bool, format string, args ...any) {
		if is {
			fmt.Fprintf(&b, format+"\n", args...)
		}
	}
	say(r.HardMet, "hard, for what processes take")
	say(r.Look != LookNone, "look: %s", [...]string{"", "memory", "full"}[r.Look])
	say(r.Periodic, "periodic")
	say(r.BreakerOpen, "the breaker stops")
	say(!r.DiskMeasuredSince.IsZero(), "disk usage is to be measured since %v", r.DiskMeasuredSince.Sub(epoch))
	for _, l := range r.Outcomes {
		released := "nothing known"
		if v, ok := l.Released(); ok {
			released = bytesQuantity(v)
		}
		say(true, "outcome of %s: %v, released %s", l.e.Pod.PodRef.UID, l.Outcome(), released)
	}
	for _, l := range r.Finished {
		say(true, "finished: %s", l.e.Pod.PodRef.UID)
	}
	say(r.Evicting, "evicting")
	say(r.DisksShort, "disks are short")
	say(r.Near != Plenty, "memory: %s", [...]string{"", "enough", "near", "short"}[r.Near])
	for i, h := range r.Headroom {
		say(h.Observed.OK && h.Left != math.MaxUint64, "headroom of %s: %d", Quick[i], h.Left)
	}
	say(r.Within != pollCalm, "within %v", r.Within)
	return b.String()
}
