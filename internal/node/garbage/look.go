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

// slowList is how long a list may take before the runtime counts as slow to answer: periodic passes
// are put off then.
const slowList = 2 * time.Second

// view is a look, with what only its execution needs.
type view struct {
	look     *reclaim.Look
	time     time.Time
	problems []string
	slow     string        // what the runtime was slow at; empty: nothing
	waited   time.Duration // for lists that others asked for, before the runtime was asked for these
	known    Known         // that Pods of look were made from
	noImages error         // why images were not seen although they were to be
	// sandboxes whose containers that may run are more than the runtime tells; "": those that are not
	// told themselves
	untold []string
	of     map[string]bool // pods, by UID, of which what is dead is seen; nil: of all
	// ready sandboxes without a container are more than it tells: any pod may have one
	partly bool
}

// doubt notes what is wrong with a part of a look.
func (v *view) doubt(err error) {
	if err != nil {
		v.problems = append(v.problems, err.Error())
	}
}

// view sees what a plan for some kinds needs. It is an error if the runtime does not tell its
// containers and sandboxes, or its images where these alone are asked for; what else cannot be seen
// is absent. Images that cannot be seen keep nothing else from being collected: another service may
// have them, or a container may not tell its volumes.
func (c *Collector) view(ctx context.Context, what What, trigger reclaim.Trigger) (*view, error) {
	v := &view{look: &reclaim.Look{Trigger: trigger, AgentStarted: c.o.Started}}
	v.problems = slices.Clone(c.odd)
	if err := c.lists(ctx, v); err != nil {
		return nil, err
	}
	if len(c.logs) > 2*len(v.look.Containers) {
		clear(c.logs) // most are of containers that are gone
	}
	// After the lists: a pod that is in none of them and is named from here on is not gone by what was
	// known before.
	v.known = c.o.Known()
	v.look.PodsSynced = v.known.Synced
	c.lookAtPlaces(v) // for images too: a pod lives by what is seen there
	if what&Images != 0 {
		err := c.lookAtImages(ctx, v)
		if err != nil && (what == Images || ctx.Err() != nil) {
			return nil, err
		}
		if v.look.Records = c.records; err != nil {
			v.noImages = fmt.Errorf("no image goes, they cannot be seen: %w", err)
			v.doubt(v.noImages)
			v.look.Images, v.look.ImagesInUse, v.look.ImageFs = nil, nil, stats.Opt[reclaim.ImageFsSize]{}
		}
	}
	v.time = c.now()
	if !c.pulling.IsZero() {
		v.look.PutOff = max(0, v.time.Sub(c.pulling))
	}
	if c.o.Once {
		v.look.PutOff = reclaim.PullingMost
	}
	if v.partly {
		c.quiet = newQuiet() // it begins anew: any pod may have lived
	} else {
		c.quiet.update(v.time, c.uptime(), v.look)
	}
	c.quiet.count(v.time, v.known.Pods, c.o.PodGoneAfter)
	v.look.Pods = reclaim.Phases(v.time, v.look, c.quiet.since, v.known.Pods, c.o.PodGoneAfter)
	for uid := range v.known.renewed(v.look) {
		v.look.Pods[uid] = reclaim.Active
	}
	// What clients name they have to name again after a restart, and need time for that.
	v.doubt(c.store.savePods(c.quiet.seen, v.known.Pods))
	c.odd = nil // it is in the result
	return v, nil
}

// lists asks the runtime for sandboxes and containers. The sandboxes come first: a container whose
// sandbox was made in between is then one that its label tells of.
func (c *Collector) lists(ctx context.Context, v *view) error {
	began, l := c.now(), v.look
	if v.of == nil { // what grows by and by is there twice
		l.Sandboxes, l.Containers = make([]reclaim.Sandbox, 0, len(c.listed)),
			make([]reclaim.Container, 0, c.had)
	}
	asking, waited := cri.Waited(ctx)
	left, err := c.o.Runtime.Sandboxes(asking, c.listed, func(s *cri.PodSandbox) {
		if c.sees(v, s) {
			l.Sandboxes = append(l.Sandboxes, sandboxOf(s))
		}
	})
	if err != nil {
		return err
	}
	left.Dead = false // all containers are listed next
	v.missSandboxes(left)
	c.tooSlow(v, began, waited(), "its list of sandboxes")
	began = c.now()
	asking, waited = cri.Waited(ctx)
	known := make([]string, 0, len(l.Sandboxes))
	for i := range l.Sandboxes {
		known = append(known, l.Sandboxes[i].ID)
	}
	texts := newTexts(l.Sandboxes)
	if err := c.o.Runtime.AllContainers(asking, known, cri.Told{
		Again: func() { l.Containers = l.Containers[:0] },
		Container: func(one *cri.Container) {
			if it := texts.container(one); c.seesContainer(v, texts.sandboxes[one.SandboxID], &it) {
				l.Containers = append(l.Containers, it)
			}
		},
		Sandbox: func(s *cri.PodSandbox) {
			if !c.sees(v, s) {
				return
			}
			known = append(known, s.ID)
			came := sandboxOf(s)
			l.Sandboxes, texts.sandboxes[s.ID] = append(l.Sandboxes, came), &came
		},
		Untold: func(id string, of cri.ContainerState) { v.miss(texts.sandboxes[id], id, of) },
		Left:   v.missSandboxes,
	}); err != nil {
		return err
	}
	c.remember(v, known)
	c.date(l, texts.sandboxes)
	c.tooSlow(v, began, waited(), "its list of containers")
	return nil
}

// sees says whether a sandbox is of those that a view is of. When one of the future was seen is
// remembered by seeing it each time.
func (c *Collector) sees(v *view, s *cri.PodSandbox) bool {
	_, dated := c.sandboxes[s.ID]
	return v.of == nil || s.Ready || v.of[s.UID] || dated || s.CreatedAt.After(v.time)
}

// seesContainer is likewise for a container, whose sandbox is nil where it is not seen or not
// known.
func (c *Collector) seesContainer(v *view, s *reclaim.Sandbox, one *reclaim.Container) bool {
	_, dated := c.containers[one.ID]
	return v.of == nil || one.State != reclaim.Exited || v.of[one.PodUID] || s != nil &&
		v.of[s.PodUID] || dated || one.CreatedAt.After(v.time)
}

// remember keeps the IDs of sandboxes that were listed: where a view is of some only, of those as
// well.
func (c *Collector) remember(v *view, ids []string) {
	if v.of == nil {
		c.listed, c.had = ids, len(v.look.Containers)
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

// missSandboxes notes sandboxes that the runtime does not tell, for all are more than an answer
// takes. None has a container that may run. What is ready all the same counts as alive, and may be
// about to get one. Containers that have exited in those that are not told may be of a pod between
// two starts, which needs its image: any might be it.
func (v *view) missSandboxes(left cri.Untold) {
	say := func(which, so string) {
		text := "the runtime does not tell all sandboxes that " + which +
			", for they are too large (look for pods with large annotations): " + so
		if !slices.Contains(v.problems, text) {
			v.problems = append(v.problems, text)
		}
	}
	if left.Ready {
		v.partly = true
		say("are ready", "no pod is gone for its silence, and images wait as for a young sandbox")
	}
	if left.Over {
		say("are not ready", "some without containers may stay")
	}
	if left.Dead && !slices.Contains(v.untold, "") {
		say("have containers", "those may stay, and images with them")
		v.untold = append(v.untold, "")
	}
}

// miss notes containers that the runtime does not tell, for they are more than an answer takes. Of
// those that may run one stands in that is never touched: its pod lives, its sandbox is not empty,
// and any image might be its.
func (v *view) miss(s *reclaim.Sandbox, id string, of cri.ContainerState) {
	v.problems = append(v.problems,
		fmt.Sprintf("sandbox %.64q has more containers that are %v than the runtime tells in one answer",
			id, of))
	if of == cri.Exited || slices.Contains(v.untold, id) {
		return
	}
	v.untold = append(v.untold, id)
	one := reclaim.Container{SandboxID: id, State: reclaim.StateAbsent}
	if s != nil {
		one.PodUID = s.PodUID
	}
	v.look.Containers = append(v.look.Containers, one)
}

// texts are those that many containers have: of ten thousand dead ones each is kept once.
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

// tooSlow notes that a list took long, apart from what was waited before it was asked for.
func (c *Collector) tooSlow(v *view, began time.Time, waited time.Duration, what string) {
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

// lookAtImages asks for the images, which of them are in use where no list says so, and the size of
// their file system.
func (c *Collector) lookAtImages(ctx context.Context, v *view) error {
	began := c.now()
	asking, waited := cri.Waited(ctx)
	images, err := c.o.Runtime.ListImages(asking)
	if err != nil {
		return err
	}
	c.tooSlow(v, began, waited(), "its list of images")
	v.look.Images = make([]reclaim.Image, 0, len(images))
	for i := range images {
		v.look.Images = append(v.look.Images, imageOf(&images[i]))
	}
	if c.pause, err = c.o.Runtime.SandboxImages(ctx); err != nil {
		return err
	}
	if err := c.inUse(ctx, v); err != nil {
		return err
	}
	info, err := c.o.Runtime.ImageFsInfo(ctx)
	if err != nil || len(info.Images) == 0 {
		v.doubt(err)
		return nil
	}
	c.imageDir = info.Images[0].Mountpoint
	fs, err := c.statfs(c.imageDir)
	if err != nil {
		v.doubt(err)
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
