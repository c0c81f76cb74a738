package reclaim

import (
	"fmt"
	"slices"
	"time"

	"jettison/stats"
)

// Plan is what to remove, in the order of its steps. The plan after a plan that was carried out, at
// the same time, is empty.
type Plan struct {
	Time    time.Time
	Trigger Trigger
	Steps   []Step
	// Left is what could not be judged, or is not a pod's, and therefore stays.
	Left []Left
	// Errors are what is wrong with the node or the policy: a disk that images cannot make room on.
	// The steps stand all the same.
	Errors []string
	// Short says that the images that may go should not make enough room (Insufficient); empty: they
	// should, or need not.
	Short string
	// Pulling is the sandbox for which no image goes for now; empty: for none.
	Pulling string
	// Spare are images that may go as well as those of Steps with the reason Space, in their order:
	// sizes are predictions, and shared layers count in each image. They are for a file system that
	// after the steps still has less than Available.
	Spare []Step
	// Available is how many bytes are to be available on the image file system. Absent: no image goes
	// for space.
	Available stats.Opt[uint64]
	// Records are those of the images after this look, to be kept for the next one. Steps are not
	// taken off: what was removed is no longer listed then.
	Records Records
}

// Step removes one thing. The caller that carries it out looks again first: it may run, be used or
// be named by now.
type Step struct {
	Action Action
	// of the container, sandbox or image; the name of a log directory or link; the path of a cgroup
	ID     string
	PodUID string // empty for an image and a link
	Name   string // for people: container, namespace/name of a sandbox, first name of an image
	// StopFirst: the runtime does not know whether the container runs. It is stopped, and only then
	// removed. (A sandbox is always stopped first; what cannot be stopped is not removed.)
	StopFirst      bool
	RuntimeHandler string // of an image
	// created; of an image: last used, else first seen. Zero: not known
	Since  time.Time
	Bytes  stats.Opt[uint64] // that this should free. Absent: not known
	Reason Reason
	Why    string // the reason in words
}

// Left is what a plan leaves alone although it may be garbage.
type Left struct{ What, Why string }

// String is "what: why".
func (l Left) String() string { return l.What + ": " + l.Why }

// Action is what a step does.
type Action uint8

// The actions, in the order that a plan has them.
const (
	RemoveContainer Action = iota
	RemoveSandbox
	RemoveLogs
	RemoveLink
	RemoveCgroup
	RemoveVolumes // those of an evicted pod that were put aside
	RemoveImage
)

// String is as in "remove container".
func (a Action) String() string {
	return [...]string{
		"remove container", "remove sandbox", "remove logs", "remove link", "remove cgroup",
		"remove volumes", "remove image",
	}[a]
}

// Reason is why a step is taken.
type Reason string

// The reasons.
const (
	PodGone       Reason = "PodGone"
	PodEvicted    Reason = "PodEvicted"
	PodTerminated Reason = "PodTerminated"      // and the disk is short
	PerContainer  Reason = "MaxPerPodContainer" // more dead ones than are kept for a name in a pod
	// maxContainers: each name in a pod keeps as many as the others
	EqualShare Reason = "EqualShare"
	Oldest     Reason = "MaxContainers" // and still too many: the oldest
	NotNewest  Reason = "NotNewest"     // a newer sandbox of the pod is kept
	MaxAge     Reason = "MaxAge"
	Space      Reason = "Space"
	Dangling   Reason = "Dangling" // what a link leads to is gone
	PutAside   Reason = "PutAside" // by an eviction for a disk, whose removal has not ended
	Pressure   Reason = "DiskPressure"
)

// Plan plans from what was seen. A part of the policy that cannot be removes nothing, and is among
// the errors.
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

// Problems are the Errors, and Short.
func (p *Plan) Problems() []string {
	out := append([]string{}, p.Errors...)
	if p.Short != "" {
		out = append(out, p.Short)
	}
	return out
}

// IDs are those of the steps of an action, in order; never nil.
func (p *Plan) IDs(a Action) []string {
	out := []string{}
	for i := range p.Steps {
		if p.Steps[i].Action == a {
			out = append(out, p.Steps[i].ID)
		}
	}
	return out
}

// StopFirst are the IDs of the containers to be stopped before they are removed, in order; never
// nil.
func (p *Plan) StopFirst() []string {
	out := []string{}
	for i := range p.Steps {
		if p.Steps[i].StopFirst {
			out = append(out, p.Steps[i].ID)
		}
	}
	return out
}

// Bytes are what all steps should free, and how many steps say nothing of it.
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
	texts     map[string]string   // that many steps have, each once
	plan      Plan
}

// shared is a text that was made before, where it was.
func (w *planner) shared(text string) string {
	if one, was := w.texts[text]; was {
		return one
	}
	w.texts[text] = text
	return text
}

// steps has room for more steps at once: of ten thousand, what grows by and by is there twice.
func (w *planner) steps(more int) {
	if more > 0 {
		w.plan.Steps = slices.Grow(w.plan.Steps, more)
	}
}

func (w *planner) leave(what, why string) { w.plan.Left = append(w.plan.Left, Left{what, why}) }

func (w *planner) fail(format string, args ...any) {
	w.plan.Errors = append(w.plan.Errors, fmt.Sprintf(format, args...))
}

// content says whether everything of a pod may go (kubelet pod_workers.go
// ShouldPodContentBeRemoved). What is known by name counts at once, what is concluded from silence
// once all pods are known.
func (w *planner) content(uid string) (Reason, bool) {
	phase, named := w.look.Pods[uid]
	switch {
	case phase == Evicted:
		return PodEvicted, true
	case (!named || phase == Gone) && w.look.PodsSynced:
		return PodGone, true
	}
	return "", false
}

// runtime says whether what the runtime holds of a pod may go: under disk pressure also of one that
// has merely terminated (kubelet ShouldPodRuntimeBeRemoved, evictNonDeletedPods).
func (w *planner) runtime(uid string) (Reason, bool) {
	if reason, ok := w.content(uid); ok {
		return reason, true
	}
	if w.look.Trigger == DiskPressure && w.look.Pods[uid] == Terminated {
		return PodTerminated, true
	}
	return "", false
}

// podWords are the reasons of pods in words.
var podWords = map[Reason]string{
	PodGone:       "its pod is gone",
	PodEvicted:    "its pod was evicted",
	PodTerminated: "its pod has terminated, and the disk is short",
}
