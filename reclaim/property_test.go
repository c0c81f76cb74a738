package reclaim

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"jettison/stats"
)

func draw[T any](t *rapid.T, of ...T) T { return rapid.SampledFrom(of).Draw(t, "") }

func someTime(t *rapid.T) time.Time {
	return now.Add(time.Duration(rapid.IntRange(-20, 1).Draw(t, "minutes ago")) * time.Minute)
}

// someLook generates a small node with many relations between its objects.
func someLook(t *rapid.T) (Policy, *Look) {
	n := func(most int) int { return rapid.IntRange(0, most).Draw(t, "n") }
	uid := func() string {
		return draw(t, "p0", "p1", "p2", "00000000-0000-0000-0000-000000000003", "0123456789abcdef0123456789abcdef", "")
	}
	l := &Look{Trigger: draw(t, Periodic, DiskPressure), Pods: map[string]Phase{}, PodsSynced: draw(t, true, true, false), Records: Records{}}
	for range n(4) {
		l.Pods[uid()] = draw(t, Active, Active, Terminated, Evicted, Gone)
	}
	created := func() time.Time {
		if n(9) == 9 {
			return time.Time{} // unknown
		}
		return someTime(t)
	}
	for i := range n(5) {
		l.Sandboxes = append(l.Sandboxes, Sandbox{ID: fmt.Sprint("s", i), PodUID: uid(), NotReady: draw(t, true, true, false), CreatedAt: created(), Attempt: uint32(n(2))})
	}
	image := func() string { return fmt.Sprint("sha256:i", n(7)) }
	for i := range n(12) {
		l.Containers = append(l.Containers, Container{ID: fmt.Sprint("c", i), SandboxID: fmt.Sprint("s", n(6)), PodUID: uid(), Name: draw(t, "a", "b"), Attempt: uint32(n(3)),
			State: draw(t, StateAbsent, Created, Running, Exited, Exited, Exited, Unknown), CreatedAt: created(), Seen: draw(t, time.Time{}, someTime(t)), Images: []string{image()}})
	}
	for range n(7) {
		i := Image{ID: image(), Pinned: draw(t, true, false, false), Bytes: stats.Opt[uint64]{V: uint64(n(300)), OK: draw(t, true, true, false)}}
		if !i.Bytes.OK {
			i.Bytes.V = 0
		}
		l.Images = append(l.Images, i)
		if draw(t, true, true, false) {
			l.Records[i.ID] = ImageRecord{FirstDetected: someTime(t), LastUsed: draw(t, time.Time{}, someTime(t))}
		}
	}
	if draw(t, true, false) {
		l.ImagesInUse = []string{image()}
	}
	l.LogDir = []string{"lost+found", "default_x_00000000-0000-0000-0000-000000000003", "kube-system_y_0123456789abcdef0123456789abcdef", "x_y_p1"}[:n(4)]
	for i := range n(3) {
		l.Links = append(l.Links, Link{Name: fmt.Sprintf("x_default_a-%064d.log", i)}, Link{Name: "mine.log"})
		l.Cgroups = append(l.Cgroups, PodCgroup{Path: fmt.Sprint("kubepods/pod", i), PodUID: uid(), Populated: draw(t, true, false, false)})
	}
	l.ImageFs = stats.Opt[ImageFsSize]{V: ImageFsSize{1000, uint64(n(400))}, OK: draw(t, true, true, false)}
	l.AgentStarted = draw(t, time.Time{}, someTime(t))
	low := n(100)
	minutes := func(most int) time.Duration { return time.Duration(n(most)) * time.Minute }
	p := Policy{
		ContainerPolicy{minutes(5), n(4) - 1, n(6) - 1, minutes(10)},
		ImagePolicy{low + n(100-low), low, minutes(5), minutes(10)},
	}
	return p, l
}

// after returns the look after executing a plan at the same time: each removal frees the expected
// amount.
func after(l *Look, p *Plan) *Look {
	gone := func(a Action) func(id string) bool {
		ids := p.IDs(a)
		return func(id string) bool { return slices.Contains(ids, id) }
	}
	containers, sandboxes, logs, images := gone(RemoveContainer), gone(RemoveSandbox), gone(RemoveLogs), gone(RemoveImage)
	links, cgroups := gone(RemoveLink), gone(RemoveCgroup)
	next := *l
	next.Containers = slices.DeleteFunc(slices.Clone(l.Containers), func(c Container) bool { return containers(c.ID) })
	next.Sandboxes = slices.DeleteFunc(slices.Clone(l.Sandboxes), func(s Sandbox) bool { return sandboxes(s.ID) })
	next.Images = slices.DeleteFunc(slices.Clone(l.Images), func(i Image) bool { return images(i.ID) })
	next.Links = slices.DeleteFunc(slices.Clone(l.Links), func(k Link) bool { return links(k.Name) })
	next.Cgroups = slices.DeleteFunc(slices.Clone(l.Cgroups), func(g PodCgroup) bool { return cgroups(g.Path) })
	next.LogDir = slices.DeleteFunc(slices.Clone(l.LogDir), logs)
	next.Records = p.Records
	for i := range p.Steps {
		if p.Steps[i].Action == RemoveImage {
			next.ImageFs.V.AvailableBytes += p.Steps[i].Bytes.V
		}
	}
	return &next
}

func TestSecondPlanIsEmpty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy, l := someLook(t)
		first := policy.Plan(now, l)
		if repeated := policy.Plan(now, l); !reflect.DeepEqual(first, repeated) {
			t.Fatalf("two plans for one look differ:\n%+v\n%+v", first, repeated)
		}
		if second := policy.Plan(now, after(l, &first)); len(second.Steps) > 0 {
			t.Fatalf("steps after executing the plan\n%+v\n= %+v, want none", first.Steps, second.Steps)
		}
	})
}

// Invariants of every plan, checked against the look alone.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy, l := someLook(t)
		p := policy.Plan(now, l)
		containers := map[string]*Container{}
		for i := range l.Containers {
			containers[l.Containers[i].ID] = &l.Containers[i]
		}
		removed := map[string]bool{}
		for at, s := range p.Steps {
			if at > 0 && s.Action < p.Steps[at-1].Action {
				t.Fatalf("step %d, %v, is after %v: wrong order", at, s.Action, p.Steps[at-1].Action)
			}
			if removed[s.Action.String()+s.ID] || s.Why == "" || s.Reason == "" {
				t.Fatalf("step is duplicate or has no reason: %+v", s)
			}
			removed[s.Action.String()+s.ID] = true
			switch s.Action {
			case RemoveContainer:
				c := containers[s.ID]
				if c.State == Running || c.State == StateAbsent || c.State == Created && now.Sub(c.CreatedAt) < policy.Container.CreatedMinAge || now.Sub(c.CreatedAt) < policy.Container.MinAge {
					t.Fatalf("removed container may run or is too young: %+v", c)
				}
				if s.StopFirst != (c.State == Unknown) {
					t.Fatalf("StopFirst = %v is wrong for container %+v", s.StopFirst, c)
				}
			case RemoveSandbox:
				checkSandbox(t, l, removed, s)
			case RemoveLogs:
				if phase, named := l.Pods[s.PodUID]; !l.PodsSynced || named && phase != Evicted && phase != Gone || PodOfLogDir(s.ID) != s.PodUID {
					t.Fatalf("removal of the logs of a pod that is not gone: %+v", s)
				}
			case RemoveLink:
				if c := containers[ContainerOfLink(s.ID)]; ContainerOfLink(s.ID) == "" || c != nil && c.State != Exited {
					t.Fatalf("removal of another file, or of the link of a container that may run: %+v", s)
				}
			case RemoveCgroup:
				checkCgroup(t, l, removed, s)
			case RemoveImage:
				checkImage(t, policy, l, s)
			}
		}
		for _, s := range p.Spare {
			if checkImage(t, policy, l, s); removed[s.Action.String()+s.ID] || s.Reason != Space || !p.Available.OK {
				t.Fatalf("image is both spare and in a step: %+v", s)
			}
		}
		checkKept(t, policy, l, removed)
	})
}

func checkSandbox(t *rapid.T, l *Look, removed map[string]bool, step Step) {
	i := slices.IndexFunc(l.Sandboxes, func(s Sandbox) bool { return s.ID == step.ID })
	if !l.Sandboxes[i].NotReady {
		t.Fatalf("removal of a ready sandbox: %+v", step)
	}
	for _, c := range l.Containers {
		if c.SandboxID == step.ID && !removed["remove container"+c.ID] {
			t.Fatalf("removed sandbox %+v still has container %+v", step, c)
		}
	}
	phase, named := l.Pods[step.PodUID]
	mayLoseAll := phase == Evicted || l.PodsSynced && (!named || phase == Gone) || l.Trigger == DiskPressure && phase == Terminated
	newer := slices.ContainsFunc(l.Sandboxes, func(s Sandbox) bool {
		return s.PodUID == step.PodUID && !s.CreatedAt.Before(step.Since) && s.ID != step.ID
	})
	if !mayLoseAll && !newer {
		t.Fatalf("removal of the newest sandbox of a pod that is not gone: %+v", step)
	}
}

func checkCgroup(t *rapid.T, l *Look, removed map[string]bool, step Step) {
	for _, g := range l.Cgroups {
		if phase, named := l.Pods[g.PodUID]; g.Path == step.ID && (g.Populated || !isUID(g.PodUID) || !l.PodsSynced || named && phase != Evicted && phase != Gone) {
			t.Fatalf("removal of a cgroup that is populated or of a pod that is not gone: %+v", g)
		}
	}
	for _, s := range l.Sandboxes {
		if s.PodUID == step.PodUID && !removed["remove sandbox"+s.ID] {
			t.Fatalf("pod of removed cgroup %+v still has sandbox %+v", step, s)
		}
	}
	for _, c := range l.Containers {
		if c.PodUID == step.PodUID && !removed["remove container"+c.ID] {
			t.Fatalf("pod of removed cgroup %+v still has container %+v", step, c)
		}
	}
}

func checkImage(t *rapid.T, policy Policy, l *Look, step Step) {
	for _, i := range l.Images {
		if i.ID == step.ID && i.Pinned {
			t.Fatalf("removal of a pinned image: %+v", step)
		}
	}
	for _, c := range l.Containers {
		if slices.Contains(c.Images, step.ID) {
			t.Fatalf("image in use by container %+v is removed: %+v", c, step)
		}
	}
	record := l.Records[step.ID]
	if record.FirstDetected.IsZero() || record.FirstDetected.After(now) {
		record.FirstDetected = now
	}
	if slices.Contains(l.ImagesInUse, step.ID) || now.Sub(record.FirstDetected) < policy.Image.MinAge {
		t.Fatalf("removal of an image that is in use or too young: %+v", step)
	}
}

// checkKept checks that pods that are not gone keep their newest dead containers, except for the
// surplus over maxContainers.
func checkKept(t *rapid.T, policy Policy, l *Look, removed map[string]bool) {
	sandbox, kept, all, most := map[string]string{}, map[string]int{}, 0, policy.Container
	for _, s := range l.Sandboxes {
		sandbox[s.ID] = s.PodUID
	}
	uidOf := func(c Container) string {
		if c.PodUID == "" {
			return sandbox[c.SandboxID]
		}
		return c.PodUID
	}
	for _, c := range l.Containers {
		if c.State != Running && c.State != StateAbsent && !removed["remove container"+c.ID] {
			kept[uidOf(c)+" "+c.Name]++
			all++
		}
	}
	for _, c := range l.Containers {
		uid := uidOf(c)
		phase, named := l.Pods[uid]
		gone := phase == Evicted || !named || phase == Gone || l.Trigger == DiskPressure && phase == Terminated
		if !removed["remove container"+c.ID] || gone && l.PodsSynced {
			continue
		}
		if n := kept[uid+" "+c.Name]; most.MaxContainers < 0 && n < most.MaxPerPodContainer || uid == "" {
			t.Fatalf("dead containers kept = %d, want %d: %+v", n, most.MaxPerPodContainer, c)
		}
		if most.MaxPerPodContainer < 0 && all < most.MaxContainers {
			t.Fatalf("dead containers kept in total = %d, want %d: %+v", all, most.MaxContainers, c)
		}
	}
}

// naive is the kubelet's evictContainers with an order among equals: one group after another, with
// shrinking lists.
func naive(policy ContainerPolicy, l *Look) []string {
	type unit struct{ uid, name string }
	units, gone := map[unit][]Container{}, []string{}
	for _, c := range l.Containers {
		age := now.Sub(c.CreatedAt)
		if !c.Seen.IsZero() {
			age = min(age, now.Sub(c.Seen))
		}
		if c.State == Running || age < policy.MinAge || c.State == Created && age < policy.CreatedMinAge {
			continue
		}
		units[unit{c.PodUID, c.Name}] = append(units[unit{c.PodUID, c.Name}], c)
	}
	newest := func(a, b Container) int {
		return older(dead{Container: &b, at: b.CreatedAt}, dead{Container: &a, at: a.CreatedAt})
	}
	keep := func(list []Container, n int) []Container {
		slices.SortFunc(list, newest)
		for len(list) > n {
			gone, list = append(gone, list[len(list)-1].ID), list[:len(list)-1]
		}
		return list
	}
	count := func() (n int) {
		for _, u := range units {
			n += len(u)
		}
		return n
	}
	for key, u := range units {
		phase, named := l.Pods[key.uid]
		if l.PodsSynced && (!named || phase == Evicted || phase == Gone || phase == Terminated && l.Trigger == DiskPressure) {
			keep(u, 0)
			delete(units, key)
		}
	}
	if policy.MaxPerPodContainer >= 0 {
		for key, u := range units {
			units[key] = keep(u, policy.MaxPerPodContainer)
		}
	}
	if policy.MaxContainers >= 0 && count() > policy.MaxContainers {
		each := max(1, policy.MaxContainers/len(units))
		var rest []Container
		for _, u := range units {
			rest = append(rest, keep(u, each)...)
		}
		keep(rest, policy.MaxContainers)
	}
	return gone
}

func TestContainersMatchKubelet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy, l := someLook(t)
		l.Sandboxes = nil
		l.Containers = slices.DeleteFunc(l.Containers, func(c Container) bool { return c.PodUID == "" || c.State == StateAbsent || c.CreatedAt.IsZero() })
		p := policy.Plan(now, l)
		got, want := p.IDs(RemoveContainer), naive(policy.Container, l)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("containers to remove = %v, want those of the kubelet %v", got, want)
		}
	})
}
