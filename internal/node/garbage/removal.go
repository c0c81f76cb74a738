package garbage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"jettison/cgroup"
	"jettison/cri"
	"jettison/internal/node/podfiles"
	"jettison/reclaim"
	"jettison/stats"
)

// stopGrace is what a container has to end in whose state the runtime does not know.
const stopGrace = 10 * time.Second

// do takes one step, after a last look at what it is about.
func (x *run) do(s *reclaim.Step, d *Done) (Outcome, string, error) {
	switch s.Action {
	case reclaim.RemoveContainer:
		return x.removeContainer(s)
	case reclaim.RemoveSandbox:
		return x.removeSandbox(s)
	case reclaim.RemoveLogs:
		return x.removeLogs(s, d)
	case reclaim.RemoveLink:
		return x.removeLink(s)
	case reclaim.RemoveCgroup:
		return x.removeCgroup(s)
	case reclaim.RemoveVolumes:
		return x.removeVolumes(s, d)
	}
	return x.removeImage(s)
}

// changed is the outcome of a step that may not be taken any more.
func changed(format string, args ...any) (Outcome, string, error) {
	return Skipped, fmt.Sprintf(format, args...), nil
}

// named says why a step that is taken for what its pod is may not be any more, by what clients and
// manifests say now; empty: it may.
func (x *run) named(s *reclaim.Step) string {
	var as []reclaim.Phase
	switch s.Reason {
	case reclaim.PodGone:
		as = []reclaim.Phase{reclaim.Gone, reclaim.Evicted}
	case reclaim.PodEvicted:
		as = []reclaim.Phase{reclaim.Evicted, reclaim.Gone}
	case reclaim.PodTerminated:
		as = []reclaim.Phase{reclaim.Terminated, reclaim.Evicted, reclaim.Gone}
	default:
		return ""
	}
	known := x.c.o.Known()
	phase, named := known.Pods[s.PodUID]
	if _, before := x.v.known.Pods[s.PodUID]; !named && !before && known.Synced {
		return ""
	}
	for _, p := range as {
		if named && phase == p {
			return ""
		}
	}
	switch {
	case !known.Synced:
		return "it is not known by now which pods there are"
	case !named: // it was, when the plan was made: the next one knows what that means
		return "its pod is not named any more"
	}
	return "its pod is named by now as one that is not gone"
}

// back reports whether the pod of a step lives again that is taken because it is not named, or
// because this agent has evicted it; what a client says is gone is gone. It may live where not all
// that is ready is told.
func (x *run) back(s *reclaim.Step, now *view) bool {
	if now.partly && x.asked(s) {
		return true
	}
	if _, named := x.v.known.Pods[s.PodUID]; s.Reason == reclaim.PodGone && !named {
		return back(now.look, s.PodUID)
	}
	return s.Reason == reclaim.PodEvicted && x.v.known.renewed(now.look)[s.PodUID]
}

// asked reports whether back has to be asked.
func (x *run) asked(s *reclaim.Step) bool {
	_, named := x.v.known.Pods[s.PodUID]
	return s.Reason == reclaim.PodGone && !named || s.Reason == reclaim.PodEvicted &&
		x.v.known.Had[s.PodUID] != nil
}

// back reports whether something of a pod lives by the runtime's word. A container without a
// kubelet's label is of its sandbox's pod.
func back(l *reclaim.Look, uid string) bool {
	for i := range l.Sandboxes {
		if s := &l.Sandboxes[i]; s.PodUID == uid && !s.NotReady {
			return true
		}
	}
	own := sandboxesOf(l, uid)
	for i := range l.Containers {
		c := &l.Containers[i]
		if (c.PodUID == uid || own[c.SandboxID]) && (c.State == reclaim.Running ||
			c.State == reclaim.StateAbsent) {
			return true // the latter may: it is not told
		}
	}
	return false
}

// sandboxesOf are the IDs of a pod's.
func sandboxesOf(l *reclaim.Look, uid string) map[string]bool {
	own := map[string]bool{}
	for i := range l.Sandboxes {
		if s := &l.Sandboxes[i]; s.PodUID == uid {
			own[s.ID] = true
		}
	}
	return own
}

func (x *run) removeContainer(s *reclaim.Step) (Outcome, string, error) {
	c := x.c
	now, err := c.o.Runtime.ContainerStatus(x.ctx, s.ID)
	if errors.Is(err, cri.ErrNotFound) {
		return WasGone, "", nil
	}
	if err != nil {
		return Failed, "", err
	}
	switch {
	case now.State == cri.Running:
		return changed("it runs")
	case now.State == cri.Created && now.CreatedAt.IsZero():
		return changed("it was created, and the runtime does not say when")
	case now.State == cri.Created && c.age(s.ID, now.CreatedAt) < c.o.Policy.Container.CreatedMinAge:
		return changed("it was created a moment ago")
	}
	if x.asked(s) {
		v, err := x.freshOf(s.PodUID)
		if err != nil {
			return Failed, "", err
		}
		if x.back(s, v) {
			return changed("its pod is back")
		}
	}
	if why := x.named(s); why != "" {
		return changed("%s", why)
	}
	if now.State == cri.Unknown {
		if err := x.call(func(ctx context.Context) error {
			return c.o.Runtime.StopContainer(ctx, s.ID, stopGrace)
		}); err != nil {
			return Failed, "", err
		}
		now, err = c.o.Runtime.ContainerStatus(x.ctx, s.ID)
		if errors.Is(err, cri.ErrNotFound) {
			return WasGone, "", nil
		}
		if err == nil && now.State != cri.Exited {
			err = fmt.Errorf("it was stopped, and the runtime calls it %v", now.State)
		}
		if err != nil {
			return Failed, "", err
		}
	}
	if why := x.filesStay(); why != "" {
		return changed("%s", why)
	}
	// The log goes first, as with a kubelet (kuberuntime_container.go removeContainer): once the
	// container is gone its place is not known.
	var logErr error
	if c.remover != nil && now.LogPath != "" {
		shared, err := x.sharesLog(s, now.LogPath)
		if err != nil {
			return Failed, "", err
		}
		if !shared { // else it goes with the last of them
			_, logErr = c.remover.ContainerLog(x.ctx, now.LogPath)
		}
	}
	if err := x.call(func(ctx context.Context) error {
		return c.o.Runtime.RemoveContainer(ctx, s.ID)
	}); err != nil {
		return Failed, "", errors.Join(err, logErr)
	}
	return Removed, "", logErr
}

// sharesLog reports whether another container has the same log, or one that would be taken for what
// this one was rotated to. A kubelet gives each attempt a log of its own. Without one all may have
// the same, and the one that runs now writes to it: those of the pod, and where the path is not one
// of this pod alone, by its UID, any other that has not exited.
func (x *run) sharesLog(s *reclaim.Step, file string) (bool, error) {
	v, err := x.freshOf(s.PodUID)
	if err != nil {
		return false, err
	}
	c, own, ofPod := x.c, sandboxesOf(v.look, s.PodUID), s.PodUID != "" &&
		strings.Contains(file, s.PodUID)
	for i := range v.look.Containers {
		o := &v.look.Containers[i]
		if o.ID == s.ID || o.PodUID != s.PodUID && !own[o.SandboxID] &&
			(ofPod || o.State == reclaim.Exited) {
			continue
		}
		if o.State == reclaim.StateAbsent {
			return true, nil // some are not told: they may
		}
		path, asked := c.logs[o.ID]
		if !asked && !x.mute[o.ID] {
			status, err := c.o.Runtime.ContainerStatus(x.ctx, o.ID)
			switch {
			case errors.Is(err, cri.ErrNotFound):
				continue
			case err != nil && x.ctx.Err() != nil:
				return false, err
			case err != nil:
				x.mute[o.ID] = true
			}
			if path = status.LogPath; err == nil {
				c.logs[o.ID] = path
			}
		}
		if x.mute[o.ID] && o.State != reclaim.Exited {
			return true, nil // it may
		}
		if path == file || strings.HasPrefix(path, file+".") {
			return true, nil
		}
	}
	return false, nil
}

// hasNewer reports whether the pod of a step's sandbox has a newer one, by the times of one look:
// those of another may be by another clock.
func hasNewer(l *reclaim.Look, s *reclaim.Step) bool {
	since := s.Since
	for i := range l.Sandboxes {
		if o := &l.Sandboxes[i]; o.ID == s.ID {
			since = o.CreatedAt
		}
	}
	return slices.ContainsFunc(l.Sandboxes, func(o reclaim.Sandbox) bool {
		return o.PodUID == s.PodUID && o.ID != s.ID && !o.CreatedAt.Before(since)
	})
}

func (x *run) removeSandbox(s *reclaim.Step) (Outcome, string, error) {
	c := x.c
	v, err := x.freshOf(s.PodUID)
	if err != nil {
		return Failed, "", err
	}
	now, _, err := c.o.Runtime.SandboxStatus(x.ctx, s.ID)
	if errors.Is(err, cri.ErrNotFound) {
		return WasGone, "", nil
	}
	if err != nil {
		return Failed, "", err
	}
	if now.Ready {
		return changed("it is ready")
	}
	if x.back(s, v) {
		return changed("its pod is back")
	}
	if why := x.named(s); why != "" {
		return changed("%s", why)
	}
	if s.Reason == reclaim.NotNewest && !hasNewer(v.look, s) {
		return changed("it is the newest of its pod by now")
	}
	containers, err := c.o.Runtime.Containers(x.ctx, s.ID)
	// dead ones that are not told go with it
	if errors.Is(err, cri.ErrTooLarge) && s.Reason != reclaim.NotNewest {
		containers, err = c.o.Runtime.NotExited(x.ctx, s.ID)
	}
	if err != nil {
		return Failed, "", err
	}
	if len(containers) > 0 {
		return changed("it has %d containers", len(containers))
	}
	if why := x.filesStay(); why != "" {
		return changed("%s", why)
	}
	if err := x.call(func(ctx context.Context) error {
		return c.o.Runtime.StopPodSandbox(ctx, s.ID)
	}); err != nil {
		return Failed, "", err
	}
	if err := x.call(func(ctx context.Context) error {
		return c.o.Runtime.RemovePodSandbox(ctx, s.ID)
	}); err != nil {
		return Failed, "", err
	}
	return Removed, "", nil
}

func (x *run) removeLogs(s *reclaim.Step, d *Done) (Outcome, string, error) {
	v, err := x.freshOf(s.PodUID)
	if err != nil {
		return Failed, "", err
	}
	if why := x.named(s); why != "" {
		return changed("%s", why)
	}
	if v.partly || back(v.look, s.PodUID) {
		return changed("its pod is back, or may be")
	}
	if why := x.filesStay(); why != "" {
		return changed("%s", why)
	}
	ref := stats.PodReference{UID: s.PodUID}
	ref.Namespace, ref.Name, _ = strings.Cut(s.Name, "/")
	gone, err := x.c.remover.Logs(x.ctx, ref)
	d.Freed = stats.Some(gone.Bytes)
	switch {
	case err != nil:
		return Failed, "", err
	case gone.Entries == 0:
		return WasGone, "", nil
	}
	return Removed, "", nil
}

// removeVolumes removes what was put aside, whatever the pod is by now, and what else the eviction
// did not come to, if nothing is there of the pod.
func (x *run) removeVolumes(s *reclaim.Step, d *Done) (Outcome, string, error) {
	gone, err := x.c.remover.Aside(x.ctx, s.PodUID, func() bool { return x.nothingOf(s.PodUID) })
	d.Freed = stats.Some(gone.Bytes)
	switch {
	case errors.Is(err, podfiles.ErrTaken):
		return changed("it is being removed")
	case err != nil:
		return Failed, "", err
	case gone.Entries == 0:
		return WasGone, "", nil
	}
	return Removed, "", nil
}

// nothingOf: there is no kubelet, the runtime has nothing of a pod, and nobody names it as one that
// is there.
func (x *run) nothingOf(uid string) bool {
	known := x.c.o.Known()
	phase, named := known.Pods[uid]
	if !known.Synced || named && phase != reclaim.Gone && phase != reclaim.Evicted ||
		x.filesStay() != "" {
		return false
	}
	v, err := x.freshOf(uid)
	if err != nil || v.partly {
		return false
	}
	l := v.look
	return !slices.ContainsFunc(l.Sandboxes,
		func(o reclaim.Sandbox) bool { return o.PodUID == uid }) &&
		!slices.ContainsFunc(l.Containers, func(o reclaim.Container) bool { return o.PodUID == uid })
}

func (x *run) removeLink(s *reclaim.Step) (Outcome, string, error) {
	now, err := x.c.o.Runtime.ContainerStatus(x.ctx, reclaim.ContainerOfLink(s.ID))
	switch {
	case errors.Is(err, cri.ErrNotFound):
	case err != nil:
		return Failed, "", err
	case now.State != cri.Exited:
		return changed("its container is %v", now.State)
	}
	if why := x.filesStay(); why != "" {
		return changed("%s", why)
	}
	if err := x.c.remover.Link(linksDir, s.ID); err != nil {
		return Failed, "", err
	}
	return Removed, "", nil
}

func (x *run) removeCgroup(s *reclaim.Step) (Outcome, string, error) {
	v, err := x.freshOf(s.PodUID)
	if err != nil {
		return Failed, "", err
	}
	if why := x.named(s); why != "" {
		return changed("%s", why)
	}
	for i := range v.look.Sandboxes {
		if v.look.Sandboxes[i].PodUID == s.PodUID {
			return changed("the runtime has sandbox %.64q of its pod", v.look.Sandboxes[i].ID)
		}
	}
	err = x.c.fs.RemoveEmpty(s.ID)
	if errors.Is(err, cgroup.ErrPopulated) {
		return changed("something lives in it")
	}
	if err != nil {
		return Failed, "", err
	}
	return Removed, "", nil
}
