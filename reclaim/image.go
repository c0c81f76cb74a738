package reclaim

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"jettison/stats"
)

// youngSandbox is for how long a sandbox without a container may be one whose image was just
// pulled.
const youngSandbox = time.Minute

// PullingMost is for how long young sandboxes put images off, one after the other. From then on
// images go as without them: a runtime pulls again what a container lacks, but a disk that is full
// stops the node.
const PullingMost = 15 * time.Minute

// unused is an image that may go.
type unused struct {
	*Image
	ImageRecord
}

// planImages follows the kubelet's image garbage collection: the age first, then space, or under
// disk pressure all that is unused. An image that a container uses counts as used even if this plan
// removes the container: that may fail, and the next plan is near.
func (w *planner) planImages() {
	images := merged(w.look.Images)
	used := UsedIn(w.look)
	w.plan.Records = w.look.Records.Detect(w.now, images, used)
	policy := w.policy.Image
	if err := policy.Validate(); err != nil {
		w.plan.Errors = append(w.plan.Errors, err.Error())
		return
	}
	all := w.evictionOrder(images, used)
	if w.look.Trigger == DiskPressure {
		for _, i := range all {
			if w.mayGo(i) {
				w.removeImage(i, Pressure, "unused, and the disk is short")
			}
		}
		return
	}
	// kubelet.go StartGarbageCollection: off
	if policy.HighThresholdPercent == 100 && policy.MaxAge == 0 {
		return
	}
	first, errs := len(w.plan.Steps), len(w.plan.Errors)
	freed, rest := w.planAge(all)
	w.planSpace(freed, rest)
	if name := w.look.Pulling(w.now); name != "" && len(w.plan.Steps) > first &&
		w.look.PutOff < PullingMost {
		w.plan.Pulling = name
		n := len(w.plan.Steps) - first
		w.plan.Steps, w.plan.Errors = w.plan.Steps[:first], w.plan.Errors[:errs]
		w.plan.Spare, w.plan.Short, w.plan.Available = nil, "", stats.Opt[uint64]{}
		w.fail("images: none goes for now (planned: %d): sandbox %.64q is younger than %v and has no "+
			"container yet, its image may be among them",
			n, name, youngSandbox)
	}
}

// evictionOrder is the images neither used nor pinned: those never used first, then the longest
// unused, then the first seen (kubelet imagesInEvictionOrder).
func (w *planner) evictionOrder(images []Image, used Used) []unused {
	out := make([]unused, 0, len(images))
	for i := range images {
		if image := &images[i]; !image.Pinned && !used.Image(image) {
			out = append(out, unused{image, w.plan.Records[image.ID]})
		}
	}
	slices.SortFunc(out, func(a, b unused) int {
		return cmp.Or(a.LastUsed.Compare(b.LastUsed), a.FirstDetected.Compare(b.FirstDetected),
			strings.Compare(a.ID, b.ID))
	})
	return out
}

// mayGo says whether an image is old enough and was not in use at this very time (kubelet
// freeSpace).
func (w *planner) mayGo(i unused) bool {
	return i.LastUsed.Before(w.now) && w.now.Sub(i.FirstDetected) >= w.policy.Image.MinAge
}

// planAge removes what was not used for maxAge, or never. It returns what that frees and the images
// that remain. Only when the agent has run for longer itself: it would not have seen them used. The
// kubelet takes an image that was never used at once, also one that was just pulled (weakness 16);
// here it gets the minimum age.
func (w *planner) planAge(all []unused) (freed uint64, rest []unused) {
	most := w.policy.Image.MaxAge
	switch {
	case most == 0:
		return 0, all
	case w.look.AgentStarted.IsZero():
		w.fail("images: none goes for its age: it is not known since when the agent runs")
		return 0, all
	case w.now.Sub(w.look.AgentStarted) <= most:
		return 0, all
	}
	rest = all[:0]
	for _, i := range all {
		if !w.mayGo(i) || w.now.Sub(i.LastUsed) <= most {
			rest = append(rest, i)
			continue
		}
		freed = stats.SaturatingAdd(freed, i.Bytes.V)
		if i.LastUsed.IsZero() {
			w.removeImage(i, MaxAge, fmt.Sprintf("never used, and older than the minimum age of %v",
				w.policy.Image.MinAge))
		} else {
			w.removeImage(i, MaxAge, fmt.Sprintf("not used for longer than %v", most))
		}
	}
	return freed, rest
}

// planSpace removes images until the disk is at the low threshold, if it is at the high one
// (kubelet GarbageCollect). The figures are predictions: each removal frees the image's size.
func (w *planner) planSpace(freed uint64, images []unused) {
	fs, policy := w.look.ImageFs, w.policy.Image
	if !fs.OK {
		if slices.ContainsFunc(images, w.mayGo) {
			w.fail("images: none goes for space: the size of the image filesystem is not known")
		}
		return
	}
	capacity := fs.V.CapacityBytes
	if capacity == 0 {
		w.fail("invalid capacity 0 on image filesystem")
		return
	}
	available := min(capacity, stats.SaturatingAdd(fs.V.AvailableBytes, freed))
	usage := 100 - int(share(available, 100, capacity))
	if usage < policy.HighThresholdPercent {
		return
	}
	want := share(capacity, uint64(100-policy.LowThresholdPercent), 100)
	if want <= available { // both thresholds alike, and rounding: the kubelet would remove one more
		return
	}
	w.plan.Available = stats.Some(want)
	want -= available
	why := fmt.Sprintf("unused; the image filesystem is %d%% full, the high threshold is %d%%: %s to free down to %d%%",
		usage, policy.HighThresholdPercent, formatSize(want), policy.LowThresholdPercent)
	got := uint64(0)
	for _, i := range images {
		switch {
		case !w.mayGo(i):
		case got < want:
			got = stats.SaturatingAdd(got, i.Bytes.V)
			w.removeImage(i, Space, why)
		default:
			w.plan.Spare = append(w.plan.Spare, imageStep(i, Space, why))
		}
	}
	if got < want {
		w.plan.Short = Insufficient(fs.V, got)
	}
}

// Insufficient is the message of the kubelet's event FreeDiskSpaceFailed: fs as it was before, and
// how many bytes were freed.
func Insufficient(fs ImageFsSize, freed uint64) string {
	usage := 100
	if fs.CapacityBytes > 0 {
		usage -= int(share(min(fs.AvailableBytes, fs.CapacityBytes), 100, fs.CapacityBytes))
	}
	return fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). "+
		"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
		"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
		usage, formatSize(fs.CapacityBytes), freed)
}

// share is a*b/c in whole numbers; the result must fit.
func share(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	q, _ := bits.Div64(hi, lo, c)
	return q
}

func (w *planner) removeImage(i unused, reason Reason, why string) {
	w.plan.Steps = append(w.plan.Steps, imageStep(i, reason, why))
}

func imageStep(i unused, reason Reason, why string) Step {
	s := Step{Action: RemoveImage, ID: i.ID, RuntimeHandler: i.RuntimeHandler, Since: i.LastUsed,
		Bytes: i.Bytes, Reason: reason, Why: why}
	if s.Since.IsZero() {
		s.Since = i.FirstDetected
	}
	if len(i.Names) > 0 {
		s.Name = i.Names[0]
	}
	return s
}

// Pulling is the ID of a ready sandbox that is younger than a minute and has no container: its
// image may just have been pulled, and nothing uses it yet. "": there is none.
func (l *Look) Pulling(now time.Time) string {
	full := make(map[string]bool, len(l.Sandboxes))
	for i := range l.Containers {
		full[l.Containers[i].SandboxID] = true
	}
	for i := range l.Sandboxes {
		if s := &l.Sandboxes[i]; !s.NotReady && !full[s.ID] && s.young(now) {
			return s.ID
		}
	}
	return ""
}

// young goes by the wall clock only where nothing else is known.
func (s *Sandbox) young(now time.Time) bool {
	if s.Seen.IsZero() {
		return now.Sub(s.CreatedAt).Abs() < youngSandbox
	}
	return now.Sub(s.Seen) < youngSandbox
}

// merged puts images that are listed several times together, in their first place.
func merged(images []Image) []Image {
	at := make(map[string]int, len(images))
	out := make([]Image, 0, len(images))
	for _, i := range images {
		k, ok := at[i.ID]
		if !ok {
			at[i.ID] = len(out)
			out = append(out, i)
			continue
		}
		m := &out[k]
		m.Pinned = m.Pinned || i.Pinned
		m.Names = slices.Concat(m.Names, i.Names)
		if i.Bytes.OK {
			m.Bytes = stats.Some(max(m.Bytes.V, i.Bytes.V))
		}
	}
	return out
}

// formatSize is a size as the kubelet writes it (image_gc_manager.go formatSize).
func formatSize(n uint64) string {
	size, units := float64(n), []string{"KiB", "MiB", "GiB", "TiB"}
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	for _, unit := range units {
		if size /= 1024; size < 1024 || unit == "TiB" {
			return fmt.Sprintf("%.1f %s", size, unit)
		}
	}
	return ""
}
