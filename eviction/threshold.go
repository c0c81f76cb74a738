package eviction

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/stats"
)

// Threshold is one eviction threshold; it is met when less than Value is available (strictly).
type Threshold struct {
	Signal stats.Signal
	Value  ThresholdValue
}

// ThresholdValue is a quantity or a share of the capacity; exactly one is set.
type ThresholdValue struct {
	Quantity   *resource.Quantity
	Percentage float32 // 0.1 is 10%
}

// Of is the value in the signal's unit for a capacity; percentages are cut to an integer as the kubelet does it
// (pkg/kubelet/eviction/api/types.go GetThresholdQuantity: int64(float64(capacity) * float64(float32 percentage))).
func (v ThresholdValue) Of(capacity uint64) uint64 {
	if v.Quantity != nil {
		return uint64(max(v.Quantity.Value(), 0))
	}
	if share := float64(capacity) * float64(v.Percentage); share > 0 {
		return uint64(int64(share))
	}
	return 0 // also for NaN, which is never met
}

// String is the value as it was written.
func (v ThresholdValue) String() string {
	if v.Quantity != nil {
		return v.Quantity.String()
	}
	return strconv.FormatFloat(float64(v.Percentage)*100, 'g', 6, 32) + "%"
}

// String is the threshold as the kubelet's flags write it: memory.available<100Mi.
func (t Threshold) String() string { return string(t.Signal) + "<" + t.Value.String() }

var signals = map[stats.Signal]bool{
	stats.SignalMemoryAvailable: true, stats.SignalAllocatableMemoryAvailable: true,
	stats.SignalNodeFsAvailable: true, stats.SignalNodeFsInodesFree: true,
	stats.SignalImageFsAvailable: true, stats.SignalImageFsInodesFree: true,
	stats.SignalContainerFsAvailable: true, stats.SignalContainerFsInodesFree: true,
	stats.SignalPIDAvailable: true,
}

// DefaultHard is evictionHard where a configuration file leaves it out (kubelet pkg/kubelet/apis/config/v1beta1
// defaults_linux.go, v1.36). Where it is given, even empty, it replaces all of these.
func DefaultHard() map[string]string {
	return map[string]string{
		"memory.available":   "100Mi",
		"nodefs.available":   "10%",
		"nodefs.inodesFree":  "5%",
		"imagefs.available":  "15%",
		"imagefs.inodesFree": "5%",
	}
}

// ParseHard reads evictionHard: signal to value. Errors are the kubelet's, word for word (pkg/kubelet/eviction/helpers.go,
// parseThresholdStatements). "0%" and "100%" switch a signal off. The result is sorted by signal.
func ParseHard(statements map[string]string) ([]Threshold, error) {
	var out []Threshold
	for _, signal := range slices.Sorted(maps.Keys(statements)) {
		t, err := parseThreshold(stats.Signal(signal), statements[signal])
		if err != nil {
			return nil, err
		}
		if t != nil {
			out = append(out, *t)
		}
	}
	slices.SortFunc(out, func(a, b Threshold) int { return cmp.Compare(a.Signal, b.Signal) })
	return out, nil
}

func parseThreshold(signal stats.Signal, value string) (*Threshold, error) {
	if !signals[signal] {
		return nil, fmt.Errorf("unsupported eviction signal %v", signal)
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
	quantity, err := resource.ParseQuantity(value)
	if err != nil {
		return nil, err
	}
	if quantity.Sign() < 0 || quantity.IsZero() {
		return nil, fmt.Errorf("eviction threshold %v must be positive: %s", signal, &quantity)
	}
	return &Threshold{Signal: signal, Value: ThresholdValue{Quantity: &quantity}}, nil
}

// parsePercentage follows the kubelet's parsePercentage: what is before the % as a 32-bit float, a hundredth of it.
func parsePercentage(text string) (float32, error) {
	v, err := strconv.ParseFloat(strings.TrimRight(text, "%"), 32)
	return float32(v) / 100, err
}
