package eviction

import (
	"math"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/stats"
)

// Threshold is one eviction threshold. It is met when less than Value is available, strictly. A
// pressure signal's is met when the share of time stalled is above Value.
type Threshold struct {
	Signal stats.Signal
	Value  ThresholdValue
	// Grace is the time for which the threshold must be met before a pod is evicted; 0 for a hard
	// threshold.
	Grace time.Duration
	// MinReclaim is the amount beyond Value that must be available before an eviction is over; nil:
	// nothing.
	MinReclaim *ThresholdValue
	// Window is the averaging window of a pressure signal; 0 for all other signals.
	Window time.Duration
}

// Amount reports whether the signal is an amount that a victim returns, not a share of time
// stalled.
func (t *Threshold) Amount() bool { return t.Window == 0 }

// Hard reports whether the threshold evicts without a grace period.
func (t Threshold) Hard() bool { return t.Grace == 0 }

// same reports whether other is the same threshold, possibly with other values. Each signal has one
// hard and one soft threshold.
func (t *Threshold) same(other *Threshold) bool {
	return t.Signal == other.Signal && t.Hard() == other.Hard()
}

// ThresholdValue is a quantity or a share of the capacity; exactly one is set.
type ThresholdValue struct {
	Quantity   *resource.Quantity
	Percentage float32 // 0.1 is 10%
}

// Of returns the value in the signal's unit for a capacity. Percentages are truncated to an integer
// like the kubelet's (pkg/kubelet/eviction/api/types.go GetThresholdQuantity:
// int64(float64(capacity) * float64(float32 percentage))).
func (v ThresholdValue) Of(capacity uint64) uint64 {
	if v.Quantity != nil {
		return whole(v.Quantity)
	}
	switch share := float64(capacity) * float64(v.Percentage); {
	case share >= math.MaxInt64:
		return math.MaxInt64
	case share > 0:
		return uint64(int64(share))
	}
	return 0 // also for NaN, which is never met
}

// String returns the value as configured.
func (v ThresholdValue) String() string {
	if v.Quantity != nil {
		return v.Quantity.String()
	}
	return strconv.FormatFloat(float64(v.Percentage)*100, 'g', 6, 32) + "%"
}

// String returns the threshold in the form of the kubelet's flags, memory.available<100Mi, or
// memory.pressure.full>20%/1s for a pressure signal.
func (t Threshold) String() string {
	if t.Window > 0 {
		return string(t.Signal) + ">" + t.Value.String() + "/" + shortDuration(t.Window)
	}
	return string(t.Signal) + "<" + t.Value.String()
}

// Text returns the threshold with its grace period: memory.available<1Gi for 30s.
func (t Threshold) Text() string {
	if t.Grace > 0 {
		return t.String() + " for " + t.Grace.String()
	}
	return t.String()
}

func shortDuration(d time.Duration) string {
	if d%time.Minute == 0 {
		return strconv.Itoa(int(d/time.Minute)) + "m"
	}
	return d.String()
}

// amountText formats an amount of a signal like the kubelet's messages: bytes with binary suffixes,
// counts with decimal ones (pkg/kubelet/eviction/helpers.go makeSignalObservations), and a share of
// time as a percentage.
func amountText(k kind, v uint64) string {
	switch {
	case k.pressure():
		return strconv.FormatFloat(float64(v)*100/stats.ShareUnit, 'f', -1, 64) + "%"
	case k == kindPID || k == kindInodes:
		return resource.NewQuantity(int64(min(v, math.MaxInt64)), resource.DecimalSI).String()
	}
	return bytesQuantity(v)
}

// limitText formats a threshold's value like the kubelet's messages: a quantity as configured, and
// a share of the capacity with binary suffixes, even for inodes or tasks
// (pkg/kubelet/eviction/api/types.go GetThresholdQuantity).
func limitText(t *Threshold, limit uint64) string {
	switch {
	case t.Window > 0:
		return t.Value.String()
	case t.Value.Quantity != nil:
		return t.Value.Quantity.String()
	}
	return bytesQuantity(limit)
}

// bytesQuantity formats bytes like the kubelet's messages.
func bytesQuantity(v uint64) string {
	return resource.NewQuantity(int64(min(v, math.MaxInt64)), resource.BinarySI).String()
}

// withContainerFs adds the thresholds of containerfs that follow from a layout. They are copies of
// the thresholds of imagefs if images have a separate file system that also holds the writable
// layers, else of nodefs. Configured thresholds of containerfs are dropped
// (pkg/kubelet/eviction/helpers.go UpdateContainerFsThresholds).
func withContainerFs(thresholds []Threshold, l stats.Layout) []Threshold {
	bytes, inodes := stats.SignalNodeFsAvailable, stats.SignalNodeFsInodesFree
	if l.DedicatedImageFs && !l.SplitContainerFs {
		bytes, inodes = stats.SignalImageFsAvailable, stats.SignalImageFsInodesFree
	}
	var out []Threshold
	for _, t := range thresholds {
		if signals[t.Signal].fs != containerFs {
			out = append(out, t)
		}
	}
	for _, t := range out {
		switch t.Signal {
		case bytes:
			t.Signal = stats.SignalContainerFsAvailable
		case inodes:
			t.Signal = stats.SignalContainerFsInodesFree
		default:
			continue
		}
		out = append(out, t)
	}
	return out
}
