package reclaim

import (
	"fmt"
	"slices"
	"time"

	"jettison/stats"
)

// Plan lists the objects to remove, in the order of its steps. A second plan, made at the same time
// after executing the first, is empty.
type Plan struct {
	Time    time.Time
	Trigger Trigger
	Steps   []Step
	// Left lists the objects that stay because they could not be judged or do not belong to a pod.
	Left []Left
	// Errors describes faults of the node or the policy, such as a disk on which removing images
	// cannot free enough. The steps are still valid.
	Errors []string
	// Short is a message (Insufficient) if removing all eligible images is not expected to free
	// enough; empty: it is, or no space is needed.
	Short string
	// Pulling is the sandbox for which the removal of images is postponed; empty: not postponed.
	Pulling string
	// Spare lists, in order, images that are also eligible for the reason Space. Sizes are
	// predictions, and shared layers count in each image. They are removed if the file system still
	// has less than Available after the steps.
	Spare []Step
	// Available is the number of bytes that should be available on the image file system. Absent: no
	// image is removed for space.
	Available stats.Opt[uint64]
	// Records are the records of the images after this look, to be stored for the next plan. They
	// include images that the steps remove, because the next look no longer lists these.
	Records Records
}

// Step removes one object. The caller must check the object again immediately before: it may run or
// be in use by then, or a client may provide its pod.
type Step struct {
	Action Action
	// ID of the container, sandbox or image, name of the log directory or link, or path of the cgroup
	ID     string
	PodUID string // empty for an image and a link
	Name   string // for people: container, namespace/name of a sandbox, first name of an image
	// StopFirst: the runtime does not know whether the container runs. The caller stops it before the
	// removal. (A sandbox is always stopped first. An object that cannot be stopped is not removed.)
	StopFirst      bool
	RuntimeHandler string // of an image
	// creation time; for an image the last use, or else the first detection. Zero: unknown
	Since  time.Time
	Bytes  stats.Opt[uint64] // amount that the step should free. Absent: unknown
	Reason Reason
	Why    string // Reason for people
}

// Left is an object that a plan keeps although it may be garbage.
type Left struct{ What, Why string }

// String returns "what: why".
func (l Left) String() string { return l.What + ": " + l.Why }

// Action is the kind of a step.
type Action uint8

// Actions, in their order in a plan.
const (
	RemoveContainer Action = iota
	RemoveSandbox
	RemoveLogs
	RemoveLink
	RemoveCgroup
	RemoveVolumes // volumes of an evicted pod that were moved aside
	RemoveImage
)

// String returns the action for people, such as "remove container".
func (a Action) String() string {
	return [...]string{
		"remove container", "remove sandbox", "remove logs", "remove link", "remove cgroup",
		"remove volumes", "remove image",
	}[a]
}

// Reason is the reason for a step.
type Reason string

// Reasons for steps.
const (
	PodGone       Reason = "PodGone"
	PodEvicted    Reason = "PodEvicted"
	PodTerminated Reason = "PodTerminated"      // and the disk is short
	PerContainer  Reason = "MaxPerPodContainer" // more dead containers than a name in a pod may keep
	// maxContainers: each name in a pod keeps the same number
	EqualShare Reason = "EqualShare"
	Oldest     Reason = "MaxContainers" // still too many: the oldest
	NotNewest  Reason = "NotNewest"     // a newer sandbox of the pod is kept
	MaxAge     Reason = "MaxAge"
	Space      Reason = "Space"
	Dangling   Reason = "Dangling" // the target of a link is gone
	MovedAside Reason = "PutAside" // moved aside by an eviction for a disk, removal unfinished
	Pressure   Reason = "DiskPressure"
)

// Plan makes a plan from a look. An invalid part of the policy removes nothing and is reported in
// Errors.
func (p Policy) Plan(now time.Time, l *Look) Plan {
	w := &planner{policy: p, now: now, look: l, plan: Plan{Time: now, Trigger: l.Trigger,
		Left: slices.Clone(l.Left)}}
	w.texts, w.sandboxes = map[string]string{}, make(map[string]*Sandbox, len(l.Sandboxes))
	for i := range l.Sandboxes {
		w.sandboxes[l.Sandboxes[i].ID] = &l.Sandboxes[i]
	}
	if err := p.Container.Validate(); err != nil {
		w.plan.Errors = append(w.plan.Errors, err.Error())
		w.planSandboxes(nil)
	} else {
		w.planSandboxes(w.planContainers())
	}
	w.planLogs()
	w.planLinks()
	w.planCgroups()
	w.planVolumes()
	w.planImages()
	return w.plan
}

// Problems returns the Errors, and Short if it is set.
func (p *Plan) Problems() []string {
	out := append([]string{}, p.Errors...)
	if p.Short != "" {
		out = append(out, p.Short)
	}
	return out
}

// IDs returns the IDs of the steps of an action, in order; never nil.
func (p *Plan) IDs(a Action) []string {
	out := []string{}
	for i := range p.Steps {
		if p.Steps[i].Action == a {
			out = append(out, p.Steps[i].ID)
		}
	}
	return out
}

// StopFirst returns the IDs of the containers to stop before the removal, in order; never nil.
func (p *Plan) StopFirst() []string {
	out := []string{}
	for i := range p.Steps {
		if p.Steps[i].StopFirst {
			out = append(out, p.Steps[i].ID)
		}
	}
	return out
}

// Bytes returns the amount that all steps should free, and the number of steps without a known
// amount.
func (p *Plan) Bytes() (sum uint64, unknown int) {
	for i := range p.Steps {
		if b := p.Steps[i].Bytes; b.OK {
			sum = stats.SaturatingAdd(sum, b.V)
		} else {
			unknown++
		}
	}
	return sum, unknown
}

// planner makes one plan.
type planner struct {
	policy    Policy
	now       time.Time
	look      *Look
	sandboxes map[string]*Sandbox // by ID
	texts     map[string]string   // texts shared by steps
	// inferred creation times of containers, by ID; nil: not needed yet (see creation)
	inferred map[string]time.Time
	plan     Plan
}

// intern returns an equal text from an earlier call, so that steps share it.
func (w *planner) intern(text string) string {
	if known, ok := w.texts[text]; ok {
		return known
	}
	w.texts[text] = text
	return text
}

// growSteps allocates space for more steps in one piece: growing a slice of ten thousand steps
// gradually needs twice the memory.
func (w *planner) growSteps(more int) {
	if more > 0 {
		w.plan.Steps = slices.Grow(w.plan.Steps, more)
	}
}

func (w *planner) addLeft(what, why string) { w.plan.Left = append(w.plan.Left, Left{what, why}) }

func (w *planner) fail(format string, args ...any) {
	w.plan.Errors = append(w.plan.Errors, fmt.Sprintf(format, args...))
}

// contentReason returns the reason to remove all leftovers of a pod; false: no reason (kubelet
// pod_workers.go ShouldPodContentBeRemoved). An eviction is always a reason. The absence of a pod
// is a reason only once all pods are known.
func (w *planner) contentReason(uid string) (Reason, bool) {
	phase, named := w.look.Pods[uid]
	switch {
	case phase == Evicted:
		return PodEvicted, true
	case (!named || phase == Gone) && w.look.PodsSynced:
		return PodGone, true
	}
	return "", false
}

// runtimeReason returns the reason to remove the containers and sandboxes of a pod; false: no
// reason. Under disk pressure this includes pods that have only terminated (kubelet
// ShouldPodRuntimeBeRemoved, evictNonDeletedPods).
func (w *planner) runtimeReason(uid string) (Reason, bool) {
	if reason, ok := w.contentReason(uid); ok {
		return reason, true
	}
	if w.look.Trigger == DiskPressure && w.look.Pods[uid] == Terminated {
		return PodTerminated, true
	}
	return "", false
}

// podReasonText maps reasons of pods to texts for people.
var podReasonText = map[Reason]string{
	PodGone:       "its pod is gone",
	PodEvicted:    "its pod was evicted",
	PodTerminated: "its pod has terminated, and the disk is short",
}
