package eviction

import (
	"math"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/stats"
)

// Threshold is one eviction threshold. It is met when less than Value is available, strictly; a
// pressure signal's when the share of time stalled is above it.
type Threshold struct {
	Signal stats.Signal
	Value  ThresholdValue
	// Grace is how long it must be met before a pod is evicted; 0: a hard threshold, which evicts at
	// once.
	Grace time.Duration
	// MinReclaim is how much beyond Value must be available before an eviction that was begun is over;
	// nil: nothing.
	MinReclaim *ThresholdValue
	// Window that a pressure signal's share refers to; 0 for all others.
	Window time.Duration
}

// Amount reports whether the signal counts something that a victim returns; not so a share of time
// stalled.
func (t *Threshold) Amount() bool { return t.Window == 0 }

// Hard reports whether the threshold evicts at once.
func (t Threshold) Hard() bool { return t.Grace == 0 }

// same reports whether another is this one, perhaps before or after its configuration was changed:
// there is one hard and one soft for each signal.
func (t *Threshold) same(other *Threshold) bool {
	return t.Signal == other.Signal && t.Hard() == other.Hard()
}

// ThresholdValue is a quantity or a share of the capacity; exactly one is set.
type ThresholdValue struct {
	Quantity   *resource.Quantity
	Percentage float32 // 0.1 is 10%
}

// Of is the value in the signal's unit for a capacity; percentages are cut to an integer as the
// kubelet does it (pkg/kubelet/eviction/api/types.go GetThresholdQuantity: int64(float64(capacity)
// * float64(float32 percentage))).
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

// String is the value as it was written.
func (v ThresholdValue) String() string {
	if v.Quantity != nil {
		return v.Quantity.String()
	}
	return strconv.FormatFloat(float64(v.Percentage)*100, 'g', 6, 32) + "%"
}

// String is the threshold as the kubelet's flags write it, memory.available<100Mi; a pressure
// signal's is memory.pressure.full>20%/1s.
func (t Threshold) String() string {
	if t.Window > 0 {
		return string(t.Signal) + ">" + t.Value.String() + "/" + shortDuration(t.Window)
	}
	return string(t.Signal) + "<" + t.Value.String()
}

// Text is the threshold with its grace period: memory.available<1Gi for 30s.
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

// amountText writes an amount of a signal as the kubelet's messages do: bytes with binary suffixes,
// numbers of things with decimal ones (pkg/kubelet/eviction/helpers.go makeSignalObservations); a
// share of time as a percentage.
func amountText(k kind, v uint64) string {
	switch {
	case k.pressure():
		return strconv.FormatFloat(float64(v)*100/stats.ShareUnit, 'f', -1, 64) + "%"
	case k == kindPID || k == kindInodes:
		return resource.NewQuantity(int64(min(v, math.MaxInt64)), resource.DecimalSI).String()
	}
	return bytesQuantity(v)
}

// limitText writes a threshold's value as the kubelet's messages do: a quantity as it was given, a
// share of the capacity as a number with binary suffixes, whatever it counts
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

// bytesQuantity writes bytes as the kubelet does in messages.
func bytesQuantity(v uint64) string {
	return resource.NewQuantity(int64(min(v, math.MaxInt64)), resource.BinarySI).String()
}

// withContainerFs adds the thresholds of containerfs that follow from a layout: copies of imagefs'
// where images have a file system of their own with the writable layers on it, else of nodefs';
// those that a configuration gives are dropped (pkg/kubelet/eviction/helpers.go
// UpdateContainerFsThresholds).
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
