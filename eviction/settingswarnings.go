package eviction

import (
	"fmt"
	"regexp"

	"jettison/stats"
)

// plainPercentage matches the usual form of a percentage. ParseFloat accepts more: NaN%, 10%%,
// 1e1%, 0x1p3%.
var plainPercentage = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?%$`)

// percentage warns about a share that the kubelet accepts but that has an unintended effect.
func (p *settingsParser) percentage(field string, signal stats.Signal, text string, share float32) {
	switch {
	case share != share:
		p.warn(field, signal, "%s is not a number: the threshold %v would never be met", text, signal)
	case field != fieldMin && share == 0:
		p.warn(field, signal, "%s is never met: write 0%% to switch the threshold %v off", text, signal)
	case field != fieldMin && share == 1:
		p.warn(field, signal, "%s is always met: write 100%% to switch the threshold %v off", text,
			signal)
	case field == fieldMin && share > 1:
		p.warn(field, signal,
			"minimum reclaim %s of %v exceeds the capacity: its evictions would never end", text, signal)
	case !plainPercentage.MatchString(text):
		p.warn(field, signal, "%q is an unusual form of a percentage", text)
	}
}

// warnIneffective warns about soft thresholds that are never met before the hard one, and about
// thresholds that are overwritten.
func (p *settingsParser) warnIneffective(hard, soft []Threshold) {
	for _, s := range soft {
		for _, h := range hard {
			if h.Signal == s.Signal && forestalled(s, h) {
				p.warn(fieldSoft, s.Signal,
					"soft eviction threshold %v is never met before the hard one %v", s, h)
			}
		}
	}
	for _, g := range []struct {
		field, name string
		of          []Threshold
	}{{fieldHard, "hard", hard}, {fieldSoft, "soft", soft}} {
		for _, t := range g.of {
			if signals[t.Signal].fs == containerFs { // the kubelet's words (UpdateContainerFsThresholds)
				p.warn(g.field, t.Signal,
					"%v follows from nodefs or imagefs: found %v for %s eviction. ignoring", t.Signal, t.Signal,
					g.name)
			}
		}
	}
}

// forestalled reports whether the soft threshold is certainly not met before the hard one.
// CheckCapacity compares a quantity with a share, once the capacity is known.
func forestalled(soft, hard Threshold) bool {
	switch s, h := soft.Value, hard.Value; {
	case soft.Window > 0:
		return soft.Window == hard.Window && s.Percentage >= h.Percentage
	case s.Quantity != nil && h.Quantity != nil:
		return s.Quantity.Cmp(*h.Quantity) <= 0
	case s.Quantity == nil && h.Quantity == nil:
		return s.Percentage <= h.Percentage
	}
	return false
}

// warnUnused warns about grace periods and minimum reclaims without a threshold.
func (p *settingsParser) warnUnused(all, soft []Threshold) {
	hasSignal := func(in []Threshold, signal stats.Signal) bool {
		for _, t := range in {
			if t.Signal == signal {
				return true
			}
		}
		return false
	}
	p.eachKnown(p.EvictionSoftGracePeriod, func(signal stats.Signal) {
		if !hasSignal(soft, signal) {
			p.warn(fieldGrace, signal,
				"grace period for %v has no soft eviction threshold", signal)
		}
	})
	p.eachKnown(p.EvictionMinimumReclaim, func(signal stats.Signal) {
		if !hasSignal(all, signal) {
			p.warn(fieldMin, signal, "minimum reclaim for %v has no eviction threshold",
				signal)
		}
	})
}

func (p *settingsParser) eachKnown(statements map[string]string, visit func(stats.Signal)) {
	for _, signal := range allSignals {
		if _, ok := statements[string(signal)]; ok && !p.failed(signal) {
			visit(signal)
		}
	}
}

// failed reports whether a field of the signal has an error already. Further warnings would only
// repeat it.
func (p *settingsParser) failed(signal stats.Signal) bool {
	for _, e := range p.errs {
		if e.Field[1] == string(signal) {
			return true
		}
	}
	return false
}

// allSignals lists the signals that may have a threshold, in order.
var allSignals = append(append([]stats.Signal{}, stats.Signals...),
	stats.SignalMemoryPressureFull, stats.SignalMemoryPressureSome, stats.SignalIOPressureFull,
	stats.SignalCPUPressureSome)

// CheckCapacity returns warnings about thresholds that the node cannot satisfy, which the kubelet
// never checks (weakness 28). It is called at start, once the signals were observed. observed may
// return a zero Observation for an unknown signal, which is not checked.
func CheckCapacity(thresholds []Threshold,
	observed func(stats.Signal) stats.Observation) (warnings []*FieldError) {
	warn := func(t *Threshold, field, format string, args ...any) {
		warnings = append(warnings, &FieldError{[]string{field, string(t.Signal)},
			fmt.Errorf(format, args...)})
	}
	for i := range thresholds {
		t := &thresholds[i]
		o := observed(t.Signal)
		if !o.OK || t.Window > 0 {
			continue
		}
		info, field := signals[t.Signal], fieldSoft
		if t.Hard() {
			field = fieldHard
		}
		limit := t.Value.Of(o.Capacity)
		capacity := amountText(info.kind, o.Capacity)
		switch {
		case limit > o.Capacity:
			warn(t, field, "%v can never be satisfied: the capacity is %s", t, capacity)
		case limit == o.Capacity:
			warn(t, field, "%v is met as soon as anything is in use: the capacity is %s", t, capacity)
		case t.MinReclaim != nil && stats.SaturatingAdd(limit, t.MinReclaim.Of(o.Capacity)) >= o.Capacity:
			warn(t, fieldMin, "%v and a minimum reclaim of %v leave nothing of the capacity of %s: evictions would never end",
				t, t.MinReclaim, capacity)
		}
		for j := range thresholds {
			h := &thresholds[j]
			mixed := (h.Value.Quantity == nil) != (t.Value.Quantity == nil)
			if h.Signal == t.Signal && h.Hard() && !t.Hard() && mixed && limit <= h.Value.Of(o.Capacity) {
				warn(t, field, "soft eviction threshold %v is never met before the hard one %v: "+
					"the capacity is %s", t, h, capacity)
			}
		}
	}
	return warnings
}
