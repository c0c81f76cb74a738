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

// stopGrace is the grace period of a container in unknown state.
const stopGrace = 10 * time.Second

// execute runs one step. Each step checks its object again before the removal.
func (x *run) execute(s *reclaim.Step, d *Done) (Outcome, string, error) {
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

// skip returns the outcome of a step that must no longer run.
func skip(format string, args ...any) (Outcome, string, error) {
	return Skipped, fmt.Sprintf(format, args...), nil
}

// phaseConflict returns why a step that depends on the phase of its pod must not run, according to
// the pods named now; empty: it may run.
func (x *run) phaseConflict(s *reclaim.Step) string {
	var allowed []reclaim.Phase
	switch s.Reason {
	case reclaim.PodGone:
		allowed = []reclaim.Phase{reclaim.Gone, reclaim.Evicted}
	case reclaim.PodEvicted:
		allowed = []reclaim.Phase{reclaim.Evicted, reclaim.Gone}
	case reclaim.PodTerminated:
		allowed = []reclaim.Phase{reclaim.Terminated, reclaim.Evicted, reclaim.Gone}
	default:
		return ""
	}
	known := x.c.o.Known()
	phase, named := known.Pods[s.PodUID]
	if _, before := x.v.known.Pods[s.PodUID]; !named && !before && known.Synced {
		return ""
	}
	for _, p := range allowed {
		if named && phase == p {
			return ""
		}
	}
	switch {
	case !known.Synced:
		return "list of named pods is incomplete"
	case !named: // it was named when the plan was made; the next plan decides
		return "pod is no longer named"
	}
	return "pod is now named as not gone"
}

// isRestarted reports whether the pod of a step is alive again, if the step depends on the pod
// being quiet, or evicted by this agent. A pod that root reports as gone is not checked. With
// unlisted ready sandboxes the pod may be alive.
func (x *run) isRestarted(s *reclaim.Step, now *view) bool {
	if now.partial && x.needsRestartCheck(s) {
		return true
	}
	if x.needsQuiet(s) {
		return isAlive(now.look, s.PodUID)
	}
	return s.Reason == reclaim.PodEvicted && x.v.known.restarted(now.look)[s.PodUID]
}

// needsRestartCheck reports whether isRestarted must be called for a step.
func (x *run) needsRestartCheck(s *reclaim.Step) bool {
	return x.needsQuiet(s) || s.Reason == reclaim.PodEvicted &&
		x.v.known.EvictedSandboxes[s.PodUID] != nil
}

// needsQuiet reports whether a step depends on its pod being quiet: no object names the pod, or its
// end is only claimed.
func (x *run) needsQuiet(s *reclaim.Step) bool {
	_, named := x.v.known.Pods[s.PodUID]
	switch s.Reason {
	case reclaim.PodGone:
		return !named || x.v.known.Claimed[s.PodUID]
	case reclaim.PodEvicted, reclaim.PodTerminated:
		return x.v.known.Claimed[s.PodUID]
	}
	return false
}

// isAlive reports whether the runtime lists a ready sandbox or a running container of a pod. A
// container without the kubelet's label belongs to the pod of its sandbox.
func isAlive(l *reclaim.Look, uid string) bool {
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
			return true // StateAbsent: an unlisted container may run
		}
	}
	return false
}

// sandboxesOf returns the IDs of a pod's sandboxes.
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
		return skip("container is running")
	case now.State == cri.Created && now.CreatedAt.IsZero():
		return skip("container has no creation time")
	case now.State == cri.Created && c.age(s.ID, now.CreatedAt) < c.o.Policy.Container.CreatedMinAge:
		return skip("container was created recently")
	}
	if x.needsRestartCheck(s) {
		v, err := x.freshOf(s.PodUID)
		if err != nil {
			return Failed, "", err
		}
		if x.isRestarted(s, v) {
			return skip("pod was restarted")
		}
	}
	if why := x.phaseConflict(s); why != "" {
		return skip("%s", why)
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
			err = fmt.Errorf("the runtime reports the container %v after it was stopped", now.State)
		}
		if err != nil {
			return Failed, "", err
		}
	}
	if why := x.filesBlocked(); why != "" {
		return skip("%s", why)
	}
	// Remove the log first, as a kubelet does (kuberuntime_container.go removeContainer): without the
	// container its path is unknown.
	var logErr error
	if c.remover != nil && now.LogPath != "" {
		shared, err := x.sharesLog(s, now.LogPath)
		if err != nil {
			return Failed, "", err
		}
		if !shared { // otherwise the last container's removal removes it
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

// sharesLog reports whether another container uses the same log file, or one with the name of a
// rotated file of it. A kubelet gives each attempt its own log. Without a kubelet all attempts may
// share one, and the running one writes to it. sharesLog checks the containers of the pod, and all
// containers that have not exited if the path does not contain the pod's UID.
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
			return true, nil // an unlisted container may use it
		}
		path, known := c.logs[o.ID]
		if !known && !x.noLogPath[o.ID] {
			status, err := c.o.Runtime.ContainerStatus(x.ctx, o.ID)
			switch {
			case errors.Is(err, cri.ErrNotFound):
				continue
			case err != nil && x.ctx.Err() != nil:
				return false, err
			case err != nil:
				x.noLogPath[o.ID] = true
			}
			if path = status.LogPath; err == nil {
				c.logs[o.ID] = path
			}
		}
		if x.noLogPath[o.ID] && o.State != reclaim.Exited {
			return true, nil // it may use the log
		}
		if path == file || strings.HasPrefix(path, file+".") {
			return true, nil
		}
	}
	return false, nil
}

// hasNewer reports whether the pod of a step's sandbox has a newer one. It compares times of one
// look only, because the clock may change between two looks. A sandbox of unknown age is neither newer
// nor older.
func hasNewer(l *reclaim.Look, s *reclaim.Step) bool {
	since := s.Since
	for i := range l.Sandboxes {
		if o := &l.Sandboxes[i]; o.ID == s.ID {
			since = o.CreatedAt
		}
	}
	if since.IsZero() {
		return false
	}
	return slices.ContainsFunc(l.Sandboxes, func(o reclaim.Sandbox) bool {
		return o.PodUID == s.PodUID && o.ID != s.ID && !o.CreatedAt.IsZero() && !o.CreatedAt.Before(since)
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
		return skip("sandbox is ready")
	}
	if x.isRestarted(s, v) {
		return skip("pod was restarted")
	}
	if why := x.phaseConflict(s); why != "" {
		return skip("%s", why)
	}
	if s.Reason == reclaim.NotNewest && !hasNewer(v.look, s) {
		return skip("sandbox is now the newest of its pod")
	}
	containers, err := c.o.Runtime.Containers(x.ctx, s.ID)
	// the removal of the sandbox also removes its unlisted dead containers
	if errors.Is(err, cri.ErrTooLarge) && s.Reason != reclaim.NotNewest {
		containers, err = c.o.Runtime.NotExited(x.ctx, s.ID)
	}
	if err != nil {
		return Failed, "", err
	}
	if len(containers) > 0 {
		return skip("sandbox has %d containers", len(containers))
	}
	if why := x.filesBlocked(); why != "" {
		return skip("%s", why)
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
	if why := x.phaseConflict(s); why != "" {
		return skip("%s", why)
	}
	if v.partial || isAlive(v.look, s.PodUID) {
		return skip("pod was restarted, or may have been")
	}
	if why := x.filesBlocked(); why != "" {
		return skip("%s", why)
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

// removeVolumes removes the volumes that an eviction moved aside, regardless of the pod's state. If
// nothing of the pod exists, it also removes the volumes that the eviction did not move.
func (x *run) removeVolumes(s *reclaim.Step, d *Done) (Outcome, string, error) {
	gone, err := x.c.remover.RemoveMovedVolumes(x.ctx, s.PodUID, func() bool { return x.isGone(s.PodUID) })
	d.Freed = stats.Some(gone.Bytes)
	switch {
	case errors.Is(err, podfiles.ErrInProgress):
		return skip("another removal is in progress")
	case err != nil:
		return Failed, "", err
	case gone.Entries == 0:
		return WasGone, "", nil
	}
	return Removed, "", nil
}

// isGone reports whether nothing of a pod exists: there is no kubelet, the runtime lists neither a
// sandbox nor a container of it, and no client or manifest names it as existing.
func (x *run) isGone(uid string) bool {
	known := x.c.o.Known()
	phase, named := known.Pods[uid]
	if !known.Synced || named && phase != reclaim.Gone && phase != reclaim.Evicted ||
		x.filesBlocked() != "" {
		return false
	}
	v, err := x.freshOf(uid)
	if err != nil || v.partial {
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
		return skip("container is %v", now.State)
	}
	if why := x.filesBlocked(); why != "" {
		return skip("%s", why)
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
	if why := x.phaseConflict(s); why != "" {
		return skip("%s", why)
	}
	for i := range v.look.Sandboxes {
		if v.look.Sandboxes[i].PodUID == s.PodUID {
			return skip("runtime still has sandbox %.64q of the pod", v.look.Sandboxes[i].ID)
		}
	}
	err = x.c.fs.RemoveEmpty(s.ID)
	if errors.Is(err, cgroup.ErrPopulated) {
		return skip("cgroup has processes")
	}
	if err != nil {
		return Failed, "", err
	}
	return Removed, "", nil
}
