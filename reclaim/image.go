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

// youngSandbox is the age up to which a sandbox without a container may wait for an image that was
// just pulled.
const youngSandbox = time.Minute

// MaxPostponed limits the time for which successive young sandboxes postpone the removal of images.
// After that time images are removed anyway: a missing image is pulled again, but a full disk stops
// the node.
const MaxPostponed = 15 * time.Minute

// unused is an image that is neither in use nor pinned.
type unused struct {
	*Image
	ImageRecord
}

// planImages follows the kubelet's image garbage collection: first by age, then for space; under
// disk pressure all unused images. An image of a container counts as used even if this plan removes
// the container: the removal may fail, and the next plan follows soon.
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
			if w.removable(i) {
				w.removeImage(i, Pressure, "unused, and the disk is short")
			}
		}
		return
	}
	// disabled, as in kubelet.go StartGarbageCollection
	if policy.HighThresholdPercent == 100 && policy.MaxAge == 0 {
		return
	}
	first, errs := len(w.plan.Steps), len(w.plan.Errors)
	freed, rest := w.planAge(all)
	w.planSpace(freed, rest)
	if name := w.look.Pulling(w.now); name != "" && len(w.plan.Steps) > first &&
		w.look.Postponed < MaxPostponed {
		w.plan.Pulling = name
		n := len(w.plan.Steps) - first
		w.plan.Steps, w.plan.Errors = w.plan.Steps[:first], w.plan.Errors[:errs]
		w.plan.Spare, w.plan.Short, w.plan.Available = nil, "", stats.Opt[uint64]{}
		w.fail("images: removal postponed (planned: %d): sandbox %.64q is younger than %v, has no "+
			"container and may use one of them",
			n, name, youngSandbox)
	}
}

// evictionOrder returns the images that are neither used nor pinned: first the never used ones,
// then by time of last use, oldest first; equals by time of first detection (kubelet
// imagesInEvictionOrder).
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

// removable reports whether an image is old enough and not in use now (kubelet freeSpace).
func (w *planner) removable(i unused) bool {
	return i.LastUsed.Before(w.now) && w.now.Sub(i.FirstDetected) >= w.policy.Image.MinAge
}

// planAge removes images that were not used for MaxAge, or never. It returns the amount that it
// frees and the remaining images. It removes no image until the agent itself has run for MaxAge,
// because the agent may have missed an earlier use. The kubelet removes a never used image
// immediately, even if it was just pulled (weakness 16); planAge applies the minimum age.
func (w *planner) planAge(all []unused) (freed uint64, rest []unused) {
	most := w.policy.Image.MaxAge
	switch {
	case most == 0:
		return 0, all
	case w.look.AgentStarted.IsZero():
		w.fail("images: no removal by age: the start time of the agent is unknown")
		return 0, all
	case w.now.Sub(w.look.AgentStarted) <= most:
		return 0, all
	}
	rest = all[:0]
	for _, i := range all {
		if !w.removable(i) || w.now.Sub(i.LastUsed) <= most {
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

// planSpace removes images until disk usage is at the low threshold, if usage has reached the high
// threshold (kubelet GarbageCollect). It assumes that each removal frees the image's size.
func (w *planner) planSpace(freed uint64, images []unused) {
	fs, policy := w.look.ImageFs, w.policy.Image
	if !fs.OK {
		if slices.ContainsFunc(images, w.removable) {
			w.fail("images: no removal for space: the size of the image filesystem is unknown")
		}
		return
	}
	capacity := fs.V.CapacityBytes
	if capacity == 0 {
		w.fail("invalid capacity 0 on image filesystem")
		return
	}
	available := min(capacity, stats.SaturatingAdd(fs.V.AvailableBytes, freed))
	usage := 100 - int(mulDiv(available, 100, capacity))
	if usage < policy.HighThresholdPercent {
		return
	}
	want := mulDiv(capacity, uint64(100-policy.LowThresholdPercent), 100)
	// possible with equal thresholds and rounding: the kubelet would remove one more image
	if want <= available {
		return
	}
	w.plan.Available = stats.Some(want)
	want -= available
	why := fmt.Sprintf("unused; the image filesystem is %d%% full, the high threshold is %d%%: %s to free down to %d%%",
		usage, policy.HighThresholdPercent, formatSize(want), policy.LowThresholdPercent)
	got := uint64(0)
	for _, i := range images {
		switch {
		case !w.removable(i):
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

// Insufficient returns the message of the kubelet's event FreeDiskSpaceFailed for the file system
// before the removal and the freed bytes.
func Insufficient(fs ImageFsSize, freed uint64) string {
	usage := 100
	if fs.CapacityBytes > 0 {
		usage -= int(mulDiv(min(fs.AvailableBytes, fs.CapacityBytes), 100, fs.CapacityBytes))
	}
	return fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). "+
		"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
		"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
		usage, formatSize(fs.CapacityBytes), freed)
}

// mulDiv returns a*b/c without overflow of the product. The result must fit.
func mulDiv(a, b, c uint64) uint64 {
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

// Pulling returns the ID of a ready sandbox that is younger than a minute and has no container; "":
// none. The image of its first container may have been pulled just now, without being in use yet.
func (l *Look) Pulling(now time.Time) string {
	full := make(map[string]bool, len(l.Sandboxes))
	for i := range l.Containers {
		full[l.Containers[i].SandboxID] = true
	}
	for i := range l.Sandboxes {
		if s := &l.Sandboxes[i]; !s.NotReady && !full[s.ID] && s.isYoung(now) {
			return s.ID
		}
	}
	return ""
}

// isYoung uses the wall clock only if Seen is unknown. A sandbox of unknown age may be young.
func (s *Sandbox) isYoung(now time.Time) bool {
	if s.Seen.IsZero() {
		return s.CreatedAt.IsZero() || now.Sub(s.CreatedAt).Abs() < youngSandbox
	}
	return now.Sub(s.Seen) < youngSandbox
}

// merged combines the entries of images that are listed several times, at the position of the
// first.
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

// formatSize formats a size like the kubelet (image_gc_manager.go formatSize).
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
