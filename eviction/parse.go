package eviction

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"jettison/stats"
)

// Settings are the configuration fields for thresholds, with the kubelet's names and grammar
// (k8s.io/kubelet config/v1beta1). Maps are by signal.
type Settings struct {
	EvictionHard            map[string]string
	EvictionSoft            map[string]string
	EvictionSoftGracePeriod map[string]string
	EvictionMinimumReclaim  map[string]string
	EnforceNodeAllocatable  []string
	// OwnSignals allows the signals that a kubelet does not have.
	OwnSignals bool
}

// FieldError is an error in a field of a configuration.
type FieldError struct {
	Field []string // path of keys: "evictionHard", "memory.available"
	Err   error
}

// Line returns the error with the field as a prefix, for a log.
func (e *FieldError) Line() string { return strings.Join(e.Field, ": ") + ": " + e.Err.Error() }

// Names of the fields in a configuration file.
const (
	fieldHard  = "evictionHard"
	fieldSoft  = "evictionSoft"
	fieldGrace = "evictionSoftGracePeriod"
	fieldMin   = "evictionMinimumReclaim"
)

// enforcePods is the element of enforceNodeAllocatable that limits the cgroup above all pods
// (pkg/kubelet/types/constants.go NodeAllocatableEnforcementKey).
const enforcePods = "pods"

// DefaultHard returns evictionHard for a configuration file without it (kubelet
// pkg/kubelet/apis/config/v1beta1 defaults_linux.go, v1.37). A configured value, even an empty one,
// replaces all of it.
func DefaultHard() map[string]string {
	return map[string]string{
		"memory.available":   "100Mi",
		"nodefs.available":   "10%",
		"nodefs.inodesFree":  "5%",
		"imagefs.available":  "15%",
		"imagefs.inodesFree": "5%",
	}
}

// Parse returns the thresholds of the settings: hard ones, soft ones, then the copies for the
// cgroup above all pods, each group sorted by signal. Errors are the kubelet's, word for word
// (pkg/kubelet/eviction/helpers.go ParseThresholdConfig); with any error there are no thresholds.
// Warnings concern wrong settings that a kubelet accepts.
func (s Settings) Parse() (thresholds []Threshold, warnings, errs []*FieldError) {
	p := settingsParser{Settings: s}
	hard := p.thresholds(fieldHard, s.EvictionHard)
	soft := p.thresholds(fieldSoft, s.EvictionSoft)
	grace := p.gracePeriods()
	reclaim := p.minimumReclaims()
	for i := range soft {
		period := grace[soft[i].Signal]
		if _, given := s.EvictionSoftGracePeriod[string(soft[i].Signal)]; !given {
			p.fail(fieldSoft, soft[i].Signal,
				fmt.Errorf("grace period must be specified for the soft eviction threshold %v", soft[i].Signal))
		}
		soft[i].Grace = period
	}
	thresholds = append(hard, soft...)
	for i := range thresholds {
		if v, ok := reclaim[thresholds[i].Signal]; ok {
			thresholds[i].MinReclaim = &v
		}
	}
	p.warnIneffective(hard, soft)
	p.warnUnused(thresholds, soft)
	if slices.Contains(s.EnforceNodeAllocatable, enforcePods) {
		for _, t := range thresholds {
			if t.Signal == stats.SignalMemoryAvailable && t.Hard() {
				t.Signal = stats.SignalAllocatableMemoryAvailable
				thresholds = append(thresholds, t)
			}
		}
	}
	if len(p.errs) > 0 {
		return nil, p.warnings, p.errs
	}
	return thresholds, p.warnings, nil
}

type settingsParser struct {
	Settings
	warnings, errs []*FieldError
}

func (p *settingsParser) fail(field string, signal stats.Signal, err error) {
	p.errs = append(p.errs, &FieldError{[]string{field, string(signal)}, err})
}

func (p *settingsParser) warn(field string, signal stats.Signal, format string, args ...any) {
	p.warnings = append(p.warnings, &FieldError{[]string{field, string(signal)},
		fmt.Errorf(format, args...)})
}

// each visits the entries of a map in order; unknown signals are errors.
func (p *settingsParser) each(field string, statements map[string]string,
	visit func(stats.Signal, string) error) {
	for _, name := range slices.Sorted(maps.Keys(statements)) {
		signal := stats.Signal(name)
		info, ok := signals[signal]
		if !ok || info.own && !p.OwnSignals {
			p.fail(field, signal, fmt.Errorf("unsupported eviction signal %v", signal))
			continue
		}
		if err := visit(signal, statements[name]); err != nil {
			p.fail(field, signal, err)
		}
	}
}

func (p *settingsParser) thresholds(field string, statements map[string]string) (out []Threshold) {
	p.each(field, statements, func(signal stats.Signal, value string) error {
		t, err := parseThreshold(signal, value)
		if err != nil || t == nil {
			return err
		}
		out = append(out, *t)
		if strings.HasSuffix(value, "%") {
			p.percentage(field, signal, value, t.Value.Percentage)
		}
		return nil
	})
	return out
}

// parseThreshold parses one threshold (pkg/kubelet/eviction/helpers.go parseThresholdStatement). It
// returns nil for "0%" and "100%", which switch a signal off.
func parseThreshold(signal stats.Signal, value string) (*Threshold, error) {
	if signals[signal].kind.pressure() {
		return parsePressure(signal, value)
	}
	if strings.HasSuffix(value, "%") {
		if value == "0%" || value == "100%" {
			return nil, nil
		}
		share, err := parsePercentage(value)
		switch {
		case err != nil:
			return nil, err
		case share < 0:
			return nil, fmt.Errorf("eviction percentage threshold %v must be >= 0%%: %s", signal, value)
		case share > 1:
			return nil, fmt.Errorf("eviction percentage threshold %v must be <= 100%%: %s", signal, value)
		}
		return &Threshold{Signal: signal, Value: ThresholdValue{Percentage: share}}, nil
	}
	quantity, err := parseQuantity(value)
	if err != nil {
		return nil, err
	}
	if quantity.Sign() < 0 || quantity.IsZero() {
		return nil, fmt.Errorf("eviction threshold %v must be positive: %s", signal, &quantity)
	}
	return &Threshold{Signal: signal, Value: ThresholdValue{Quantity: &quantity}}, nil
}

// parsePressure parses "20%/1s": the share of time stalled, and its window. The kernel and this
// agent have four windows.
func parsePressure(signal stats.Signal, value string) (*Threshold, error) {
	text, windowText, _ := strings.Cut(value, "/")
	share, err := parsePercentage(text)
	window, windowErr := time.ParseDuration(windowText)
	switch {
	case err != nil || windowErr != nil || !strings.HasSuffix(text, "%"):
		return nil, fmt.Errorf("pressure threshold %v must be a share of time and a window, as 20%%/1s: %s", signal, value)
	case !(share > 0 && share < 1):
		return nil, fmt.Errorf("pressure threshold %v must be above 0%% and below 100%%: %s", signal,
			value)
	case window != time.Second && window != 10*time.Second && window != time.Minute &&
		window != 5*time.Minute:
		return nil, fmt.Errorf("window of pressure threshold %v must be 1s, 10s, 1m or 5m: %s", signal,
			value)
	}
	return &Threshold{Signal: signal, Value: ThresholdValue{Percentage: share}, Window: window}, nil
}

// parsePercentage follows the kubelet's parsePercentage: the number before the % as a 32-bit float,
// divided by 100.
func parsePercentage(text string) (float32, error) {
	v, err := strconv.ParseFloat(strings.TrimRight(text, "%"), 32)
	return float32(v) / 100, err
}

// gracePeriods parses evictionSoftGracePeriod (pkg/kubelet/eviction/helpers.go parseGracePeriods).
func (p *settingsParser) gracePeriods() map[stats.Signal]time.Duration {
	out := map[stats.Signal]time.Duration{}
	p.each(fieldGrace, p.EvictionSoftGracePeriod, func(signal stats.Signal, value string) error {
		period, err := time.ParseDuration(value)
		if err != nil {
			return err
		}
		if period < 0 {
			return fmt.Errorf("invalid eviction grace period specified: %v, must be a positive value", value)
		}
		if period == 0 {
			p.warn(fieldGrace, signal, "a grace period of 0 makes the soft eviction threshold %v a hard one",
				signal)
		}
		out[signal] = period
		return nil
	})
	return out
}

// minimumReclaims parses evictionMinimumReclaim (pkg/kubelet/eviction/helpers.go
// parseMinimumReclaims).
func (p *settingsParser) minimumReclaims() map[stats.Signal]ThresholdValue {
	out := map[stats.Signal]ThresholdValue{}
	p.each(fieldMin, p.EvictionMinimumReclaim, func(signal stats.Signal, value string) error {
		if signals[signal].kind.pressure() {
			return fmt.Errorf("eviction minimum reclaim has no meaning for %v", signal)
		}
		if strings.HasSuffix(value, "%") {
			share, err := parsePercentage(value)
			if err != nil {
				return err
			}
			if share <= 0 {
				return fmt.Errorf("eviction percentage minimum reclaim %v must be positive: %s", signal, value)
			}
			p.percentage(fieldMin, signal, value, share)
			out[signal] = ThresholdValue{Percentage: share}
			return nil
		}
		quantity, err := parseQuantity(value)
		if err != nil {
			return err
		}
		if quantity.Sign() < 0 {
			return fmt.Errorf("negative eviction minimum reclaim specified for %v", signal)
		}
		out[signal] = ThresholdValue{Quantity: &quantity}
		return nil
	})
	return out
}
