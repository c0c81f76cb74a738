package garbage

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"jettison/cri"
	"jettison/reclaim"
	"jettison/stats"
)

// slowList is the time of a list after which the runtime counts as slow: periodic passes are then
// postponed.
const slowList = 2 * time.Second

// view is a look with additional data for the execution of a plan.
type view struct {
	look      *reclaim.Look
	time      time.Time
	problems  []string
	slow      string        // slow answer of the runtime; empty: none
	waited    time.Duration // time spent waiting for lists of other callers
	known     Known         // source of look.Pods
	imagesErr error         // why the requested images could not be read
	// sandboxes with containers that may run and that the runtime could not list; "": of unlisted
	// sandboxes
	unlisted []string
	scope    map[string]bool // UIDs of the pods with dead containers in the view; nil: all
	// the runtime could not list all ready sandboxes without a container: any pod may have one
	partial bool
}

// addProblem records a problem with a part of a look.
func (v *view) addProblem(err error) {
	if err != nil {
		v.problems = append(v.problems, err.Error())
	}
}

// view reads the input of a plan for some kinds. It fails if the runtime does not list its
// containers and sandboxes, or its images if only images are requested; other missing data is left
// out. Unreadable images do not block other garbage: another service may own them, or a container
// may not report its volumes.
func (c *Collector) view(ctx context.Context, what Kind, trigger reclaim.Trigger) (*view, error) {
	v := &view{look: &reclaim.Look{Trigger: trigger, AgentStarted: c.o.Started}}
	v.problems = slices.Clone(c.warnings)
	if err := c.lists(ctx, v); err != nil {
		return nil, err
	}
	if len(c.logs) > 2*len(v.look.Containers) {
		clear(c.logs) // most containers in it are gone
	}
	// Read Known after the lists, so that a pod named later than the lists does not count as gone.
	v.known = c.o.Known()
	v.look.PodsSynced = v.known.Synced
	c.readPlaces(v) // for images too: the places show which pods are alive
	if what&Images != 0 {
		err := c.readImages(ctx, v)
		if err != nil && (what == Images || ctx.Err() != nil) {
			return nil, err
		}
		if v.look.Records = c.records; err != nil {
			v.imagesErr = fmt.Errorf("no image is removed, reading the images failed: %w", err)
			v.addProblem(v.imagesErr)
			v.look.Images, v.look.ImagesInUse, v.look.ImageFs = nil, nil, stats.Opt[reclaim.ImageFsSize]{}
		}
	}
	v.time = c.now()
	if !c.pulling.IsZero() {
		v.look.Postponed = max(0, v.time.Sub(c.pulling))
	}
	if c.o.Once {
		v.look.Postponed = reclaim.MaxPostponed
	}
	if v.partial {
		c.quiet = newQuiet() // start over: any pod may have been alive
	} else {
		c.quiet.update(v.time, c.uptime(), v.look)
	}
	v.known.Pods = c.quiet.confirm(v.time, &v.known, c.o.PodGoneAfter)
	c.quiet.count(v.time, v.known.Pods, c.o.PodGoneAfter)
	v.look.Pods = reclaim.Phases(v.time, v.look, c.quiet.since, v.known.Pods, c.o.PodGoneAfter)
	for uid := range v.known.restarted(v.look) {
		v.look.Pods[uid] = reclaim.Active
	}
	// After a restart clients need time to name their pods again.
	v.addProblem(c.store.savePods(c.quiet.seen, v.known.Pods))
	c.warnings = nil // now part of the result
	return v, nil
}

// lists reads the sandboxes and containers from the runtime. The sandboxes come first: the pod of a
// container with a newer sandbox is known from its label.
func (c *Collector) lists(ctx context.Context, v *view) error {
	began, l := c.now(), v.look
	if v.scope == nil { // a growing slice would exist twice
		l.Sandboxes, l.Containers = make([]reclaim.Sandbox, 0, len(c.listed)),
			make([]reclaim.Container, 0, c.containerCount)
	}
	listCtx, waited := cri.Waited(ctx)
	left, err := c.o.Runtime.Sandboxes(listCtx, c.listed, func(s *cri.PodSandbox) {
		if c.includes(v, s) {
			l.Sandboxes = append(l.Sandboxes, sandboxOf(s))
		}
	})
	if err != nil {
		return err
	}
	left.Dead = false // the list of all containers follows
	v.addUnlistedSandboxes(left)
	c.checkSlow(v, began, waited(), "its list of sandboxes")
	began = c.now()
	listCtx, waited = cri.Waited(ctx)
	known := make([]string, 0, len(l.Sandboxes))
	for i := range l.Sandboxes {
		known = append(known, l.Sandboxes[i].ID)
	}
	texts := newTexts(l.Sandboxes)
	if err := c.o.Runtime.AllContainers(listCtx, known, cri.ContainerCallbacks{
		Again: func() { l.Containers = l.Containers[:0] },
		Container: func(one *cri.Container) {
			if it := texts.container(one); c.includesContainer(v, texts.sandboxes[one.SandboxID], &it) {
				l.Containers = append(l.Containers, it)
			}
		},
		Sandbox: func(s *cri.PodSandbox) {
			if !c.includes(v, s) {
				return
			}
			known = append(known, s.ID)
			came := sandboxOf(s)
			l.Sandboxes, texts.sandboxes[s.ID] = append(l.Sandboxes, came), &came
		},
		Unlisted: func(id string, of cri.ContainerState) { v.addUnlisted(texts.sandboxes[id], id, of) },
		Left:     v.addUnlistedSandboxes,
	}); err != nil {
		return err
	}
	c.remember(v, known)
	c.date(l, texts.sandboxes)
	c.checkSlow(v, began, waited(), "its list of containers")
	return nil
}

// includes reports whether a view contains a sandbox. A sandbox without a creation time, or dated in
// the future, is always included, so that its sighting is kept.
func (c *Collector) includes(v *view, s *cri.PodSandbox) bool {
	_, dated := c.sandboxes[s.ID]
	return v.scope == nil || s.Ready || v.scope[s.UID] || dated || s.CreatedAt.IsZero() ||
		s.CreatedAt.After(v.time)
}

// includesContainer reports whether a view contains a container. s is its sandbox, or nil if that
// is unknown or not in the view.
func (c *Collector) includesContainer(v *view, s *reclaim.Sandbox, one *reclaim.Container) bool {
	_, dated := c.containers[one.ID]
	return v.scope == nil || one.State != reclaim.Exited || v.scope[one.PodUID] || s != nil &&
		v.scope[s.PodUID] || dated || one.CreatedAt.IsZero() || one.CreatedAt.After(v.time)
}

// remember keeps the IDs of the listed sandboxes. A view of some pods only adds to the IDs.
func (c *Collector) remember(v *view, ids []string) {
	if v.scope == nil {
		c.listed, c.containerCount = ids, len(v.look.Containers)
		return
	}
	came := make(map[string]bool, len(ids))
	for _, id := range ids {
		came[id] = true
	}
	for _, id := range c.listed {
		delete(came, id)
	}
	c.listed = slices.AppendSeq(c.listed, maps.Keys(came))
}

func sandboxOf(s *cri.PodSandbox) reclaim.Sandbox {
	return reclaim.Sandbox{
		ID: s.ID, PodUID: s.UID, Namespace: s.Namespace, Name: s.Name, Attempt: s.Attempt,
		NotReady: !s.Ready, CreatedAt: s.CreatedAt,
	}
}

// addUnlistedSandboxes records that the list of sandboxes was too large for one answer. The
// unlisted ones have no container that may run. A ready one counts as alive and may be about to get
// a container. Exited containers in unlisted sandboxes may belong to a pod between two starts,
// which needs its image: any image may be in use.
func (v *view) addUnlistedSandboxes(left cri.Unlisted) {
	add := func(which, effect string) {
		text := "the runtime cannot list all sandboxes that " + which +
			", the answer is too large (look for pods with large annotations): " + effect
		if !slices.Contains(v.problems, text) {
			v.problems = append(v.problems, text)
		}
	}
	if left.Ready {
		v.partial = true
		add("are ready", "unnamed pods do not count as gone, and images stay as for a young sandbox")
	}
	if left.Over {
		add("are not ready", "some sandboxes without containers may stay")
	}
	if left.Dead && !slices.Contains(v.unlisted, "") {
		add("have containers", "the containers and their images may stay")
		v.unlisted = append(v.unlisted, "")
	}
}

// addUnlisted records that a sandbox has too many containers in a state for one answer. For those
// that may run it adds a placeholder that is never removed: the pod is alive, its sandbox is not
// empty, and any image may be in use.
func (v *view) addUnlisted(s *reclaim.Sandbox, id string, of cri.ContainerState) {
	v.problems = append(v.problems,
		fmt.Sprintf("sandbox %.64q has too many containers that are %v for one answer of the runtime",
			id, of))
	if of == cri.Exited || slices.Contains(v.unlisted, id) {
		return
	}
	v.unlisted = append(v.unlisted, id)
	one := reclaim.Container{SandboxID: id, State: reclaim.StateAbsent}
	if s != nil {
		one.PodUID = s.PodUID
	}
	v.look.Containers = append(v.look.Containers, one)
}

// texts shares equal strings between containers, so that ten thousand dead containers use less
// memory.
type texts struct {
	sandboxes map[string]*reclaim.Sandbox
	images    map[[3]string][]string
	names     map[string]string
}

func newTexts(sandboxes []reclaim.Sandbox) *texts {
	t := &texts{sandboxes: make(map[string]*reclaim.Sandbox, len(sandboxes)),
		images: map[[3]string][]string{}, names: map[string]string{}}
	for i := range sandboxes {
		t.sandboxes[sandboxes[i].ID] = &sandboxes[i]
	}
	return t
}

// checkSlow records that a list took long, without the time spent waiting for other callers.
func (c *Collector) checkSlow(v *view, began time.Time, waited time.Duration, what string) {
	v.waited += waited
	if took := max(0, c.now().Sub(began)-waited); took > c.slow && v.slow == "" {
		v.slow = fmt.Sprintf("the runtime took %v for %s", took.Round(time.Millisecond), what)
	}
}

func (t *texts) container(c *cri.Container) reclaim.Container {
	out := reclaim.Container{
		ID: c.ID, SandboxID: c.SandboxID, PodUID: c.PodUID, Name: c.Name, Attempt: c.Attempt,
		State: stateOf(c.State), CreatedAt: c.CreatedAt,
	}
	if s := t.sandboxes[c.SandboxID]; s != nil {
		if out.SandboxID = s.ID; c.PodUID == s.PodUID {
			out.PodUID = s.PodUID
		}
	}
	if name, known := t.names[c.Name]; known {
		out.Name = name
	} else {
		t.names[c.Name] = c.Name
	}
	key := [3]string{c.ImageID, c.ImageRef, c.Image}
	if images, known := t.images[key]; known {
		out.Images = images
		return out
	}
	for _, ref := range key {
		if ref != "" && !slices.Contains(out.Images, ref) {
			out.Images = append(out.Images, ref)
		}
	}
	t.images[key] = out.Images
	return out
}

func stateOf(s cri.ContainerState) reclaim.ContainerState {
	switch s {
	case cri.Created:
		return reclaim.Created
	case cri.Running:
		return reclaim.Running
	case cri.Exited:
		return reclaim.Exited
	}
	return reclaim.Unknown
}

// readImages reads the images, the images in use that no list shows, and the size of the image file
// system.
func (c *Collector) readImages(ctx context.Context, v *view) error {
	began := c.now()
	listCtx, waited := cri.Waited(ctx)
	images, err := c.o.Runtime.ListImages(listCtx)
	if err != nil {
		return err
	}
	c.checkSlow(v, began, waited(), "its list of images")
	v.look.Images = make([]reclaim.Image, 0, len(images))
	for i := range images {
		v.look.Images = append(v.look.Images, imageOf(&images[i]))
	}
	c.listedImages = v.look.Images
	if c.configImages, err = c.o.Runtime.SandboxImages(ctx); err != nil {
		return err
	}
	if err := c.inUse(ctx, v); err != nil {
		return err
	}
	info, err := c.o.Runtime.ImageFsInfo(ctx)
	if err != nil || len(info.Images) == 0 {
		v.addProblem(err)
		return nil
	}
	c.imageDir = info.Images[0].Mountpoint
	fs, err := c.statfs(c.imageDir)
	if err != nil {
		v.addProblem(err)
		return nil
	}
	v.look.ImageFs = stats.Some(fs.ImageFsSize)
	return nil
}

func imageOf(i *cri.Image) reclaim.Image {
	out := reclaim.Image{ID: i.ID, RuntimeHandler: i.RuntimeHandler, Pinned: i.Pinned}
	out.Names = append(append(out.Names, i.RepoTags...), i.RepoDigests...)
	if i.Spec != "" {
		out.Names = append(out.Names, i.Spec)
	}
	if i.Size > 0 {
		out.Bytes = stats.Some(i.Size)
	}
	return out
}
