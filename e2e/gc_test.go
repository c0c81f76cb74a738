package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/e2e/vm"
)

const gcConfigKind = "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\n"

// gcConfig makes every unused image older than a second garbage, and a pod removed after a quiet
// second.
const gcConfig = gcConfigKind + `podGoneAfter: 1s
imageMinimumGCAge: 1s
imageGCHighThresholdPercent: 1
imageGCLowThresholdPercent: 0
`

// gcOutput has the asserted fields of the output of jettison gc -o json.
type gcOutput struct {
	RemoveContainers, RemoveSandboxes, RemoveLogs, RemoveImages, RemoveLinks, RemoveCgroups, StopFirst, Errors []string

	Result struct {
		Error                      string
		Steps                      []struct{ Action, ID, Outcome, Why, Error string }
		PredictedBytes, FreedBytes uint64
		LookedSeconds, TookSeconds float64
	}
}

// garbage is a node with garbage and with things that must stay.
type garbage struct {
	*node
	pods map[string]*gcPod
	ids  map[string]string // of images, by name
}

type gcPod struct {
	uid, sandbox string
	config       *cri.PodSandboxConfig
}

// sandbox makes a sandbox by hand. A known pod of that name gets one more.
func (g *garbage) sandbox(name string, attempt uint32) *gcPod {
	g.t.Helper()
	p := g.pods[name]
	if p == nil {
		p = &gcPod{uid: uuid.NewString()}
		g.pods[name] = p
	}
	p.config = &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: p.uid, Attempt: attempt},
		LogDirectory: "/var/log/pods/default_" + name + "_" + p.uid,
		Labels:       map[string]string{"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": p.uid},
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    "/kubepods/besteffort/pod" + p.uid,
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE}},
		},
	}
	g.shell("mkdir -p " + p.config.LogDirectory)
	var err error
	if p.sandbox, err = g.RunSandbox(g.ctx, p.config); err != nil {
		g.t.Fatal(err)
	}
	return p
}

// container runs a container by hand; without arguments it ends immediately.
func (g *garbage) container(p *gcPod, name string, attempt uint32, image string, volume string, args ...string) (string, error) {
	c := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: name, Attempt: attempt}, Image: &cri.ImageSpec{Image: image, UserSpecifiedImage: image}, Args: args,
		LogPath: fmt.Sprintf("%s/%d.log", name, attempt), Labels: p.config.Labels, Linux: &cri.LinuxContainerConfig{},
	}
	if volume != "" {
		c.Mounts = []*cri.Mount{{ContainerPath: "/volume", Image: &cri.ImageSpec{Image: volume}, Readonly: true}}
	}
	return g.RunContainer(g.ctx, p.sandbox, p.config, c)
}

func (g *garbage) mustRun(p *gcPod, name string, attempt uint32, image string, args ...string) string {
	g.t.Helper()
	id, err := g.container(p, name, attempt, image, "", args...)
	if err != nil {
		g.t.Fatal(err)
	}
	return id
}

// ended waits until only so many containers run.
func (g *garbage) ended(running int) {
	g.t.Helper()
	g.until(fmt.Sprintf("%d containers run", running), func() error {
		all, err := g.Inventory(g.ctx)
		if err != nil {
			return err
		}
		n := 0
		for _, c := range all.Containers {
			if c.State == cri.ContainerState_CONTAINER_RUNNING {
				n++
			}
		}
		if n != running {
			return fmt.Errorf("%d containers still run", n)
		}
		return nil
	})
}

// gc runs jettison gc in the guest.
func (g *garbage) gc(args ...string) (out gcOutput, code int, stderr string) {
	g.t.Helper()
	res, err := g.Exec(g.ctx, append([]string{"/usr/local/bin/jettison", "gc", "--yes", "-o", "json"}, args...)...)
	if err != nil {
		g.t.Fatal(err)
	}
	if err := json.Unmarshal(res.Stdout, &out); err != nil && res.Code == 0 {
		g.t.Fatalf("decode the output of jettison gc: %v: %s%s", err, res.Stdout, res.Stderr)
	}
	return out, res.Code, string(res.Stderr)
}

func numbered(word string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint(word, "-", i))
	}
	return out
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

// compareLists compares two lists, in any order.
func (g *garbage) compareLists(what string, got, want []string) {
	g.t.Helper()
	if got, want := sorted(got), sorted(want); !slices.Equal(got, want) {
		g.t.Errorf("%s: number of entries = %d, want %d\n%v\n%v", what, len(got), len(want), got, want)
	}
}

// expected has the expected result of a pass.
type expected struct {
	containers, sandboxes, logs, cgroups, images []string // to be removed: IDs, names, paths
	link                                         string   // to be removed

	running, dead, ready, kept, foreign []string // kept: container IDs, sandbox IDs, images by the test's name, log directory entries
	crashing                            *gcPod
}

// litter makes a node with 30 dead containers, 10 dead sandboxes, 20 images (8 unused), and foreign
// files among its logs.
func litter(t *testing.T) (*garbage, *expected) {
	g := &garbage{node: startNodeWith(t, vm.Options{ImageMiB: 768}), pods: map[string]*gcPod{}, ids: map[string]string{}}
	e := &expected{}
	if err := g.WriteFile(g.ctx, "/etc/jettison/config.yaml", []byte(gcConfig)); err != nil {
		t.Fatal(err)
	}
	used, unused := numbered("used", 9), numbered("unused", 8)
	e.kept = slices.Concat(used, []string{"pinned", "stopped", "volume"})
	g.importImages(slices.Concat(unused, e.kept), 3*mib)
	for _, image := range unused {
		e.images = append(e.images, g.ids[gcTag(image)])
	}
	g.pin("pinned")
	live := g.sandbox("live", 0)
	for _, image := range used {
		e.running = append(e.running, g.mustRun(live, image, 0, gcTag(image), "sleep"))
	}
	id, err := g.container(live, "volume", 0, gcTag("used-0"), gcTag("volume"), "sleep")
	if err != nil {
		t.Fatal(err)
	}
	e.running = append(e.running, id)
	e.crashing = g.sandbox("crashing", 0)
	var attempts []string
	for i := range uint32(20) {
		attempts = append(attempts, g.mustRun(e.crashing, "main", i, vm.ImageWorkload))
	}
	e.dead = []string{attempts[19], g.mustRun(e.crashing, "once", 0, gcTag("stopped"))}
	e.containers = attempts[:19:19]
	for _, name := range numbered("gone", 9) {
		p := g.sandbox(name, 0)
		e.containers = append(e.containers, g.mustRun(p, "main", 0, vm.ImageWorkload))
		e.logs = append(e.logs, "default_"+name+"_"+p.uid)
		e.cgroups = append(e.cgroups, "kubepods/besteffort/pod"+p.uid)
		e.sandboxes = append(e.sandboxes, g.stop(p))
	}
	e.sandboxes = append(e.sandboxes, g.stop(g.sandbox("twice", 0)))
	twice := g.sandbox("twice", 1)
	e.running = append(e.running, g.mustRun(twice, "main", 0, vm.ImageWorkload, "sleep"))
	e.ready = []string{live.sandbox, e.crashing.sandbox, twice.sandbox}
	g.ended(len(e.running))
	g.foreign(e)
	return g, e
}

// stop stops a pod's sandbox and returns its ID.
func (g *garbage) stop(p *gcPod) string {
	g.t.Helper()
	if err := g.StopSandbox(g.ctx, p.sandbox); err != nil {
		g.t.Fatal(err)
	}
	return p.sandbox
}

// foreign puts files into the log directories that belong to no pod, a link to /etc named like a
// pod's, and a dangling link.
func (g *garbage) foreign(e *expected) {
	g.t.Helper()
	e.foreign = []string{"notes.txt", "my_app_logs", "journal_" + uuid.NewString(), "default_evil_" + g.pods["gone-0"].uid}
	e.link = "gone-0_default_main-" + e.containers[19] + ".log"
	g.shell(fmt.Sprintf(`cd /var/log/pods && echo x > %s && mkdir %s %s && echo x > %s/precious && busybox ln -s /etc %s && mkdir -p ../containers &&
		busybox ln -s /var/log/pods/%s/main/9.log ../containers/%s && busybox ln -s /var/log/pods/nothing ../containers/mine.log`,
		e.foreign[0], e.foreign[1], e.foreign[2], e.foreign[1], e.foreign[3], e.logs[0], e.link))
}

// plans asserts that a plan has exactly the expected steps.
func (g *garbage) plans(what string, out gcOutput, e *expected) {
	g.t.Helper()
	g.compareLists(what+": containers", out.RemoveContainers, e.containers)
	g.compareLists(what+": sandboxes", out.RemoveSandboxes, e.sandboxes)
	g.compareLists(what+": logs", out.RemoveLogs, e.logs)
	g.compareLists(what+": images", out.RemoveImages, e.images)
	g.compareLists(what+": links", out.RemoveLinks, []string{e.link})
	g.compareLists(what+": cgroups", out.RemoveCgroups, e.cgroups)
}

// A pass removes exactly the garbage, and a pod starts from every image that is kept. If the
// runtime or the pass itself is killed, the next pass completes the work.
func TestGarbageGoes(t *testing.T) {
	g, e := litter(t)
	var plan gcOutput
	g.until("all of the garbage is planned", func() error {
		plan, _, _ = g.gc("--dry-run")
		if n := len(plan.RemoveContainers) + len(plan.RemoveImages); n != len(e.containers)+len(e.images) {
			return fmt.Errorf("plan has %d containers, %d sandboxes, %d images, errors %q", len(plan.RemoveContainers), len(plan.RemoveSandboxes), len(plan.RemoveImages), plan.Errors)
		}
		return nil
	})
	g.plans("plan", plan, e)
	table, err := g.Exec(g.ctx, "/usr/local/bin/jettison", "gc", "--dry-run")
	t.Logf("the plan (%v):\n%s", err, table.Stdout)

	out, code, stderr := g.gc()
	if code != 0 {
		t.Errorf("jettison gc: exit code %d, want 0: %s", code, stderr)
	}
	g.plans("pass", out, e)
	for _, s := range out.Result.Steps {
		if s.Outcome != "removed" {
			t.Errorf("outcome of step %s %s = %s, want removed: %s%s", s.Action, s.ID, s.Outcome, s.Why, s.Error)
		}
	}
	t.Logf("pass: %d steps in %.2f s (look and plan %.2f s), predicted %d bytes, freed %d, notes %q", len(out.Result.Steps), out.Result.TookSeconds,
		out.Result.LookedSeconds, out.Result.PredictedBytes, out.Result.FreedBytes, out.Errors)
	if out.Result.FreedBytes < 8*3*mib {
		t.Errorf("freed %d bytes, want at least those of 8 images", out.Result.FreedBytes)
	}
	g.left(e)
	if out, code, stderr = g.gc(); code != 0 || len(out.Result.Steps) > 0 {
		t.Errorf("second pass: exit code %d %s, steps %v, want none", code, stderr, out.Result.Steps)
	}
	again := g.sandbox("again", 0)
	for _, image := range e.kept {
		e.running = append(e.running, g.mustRun(again, image, 0, gcTag(image), "sleep"))
	}
	g.ended(len(e.running))
	g.finishes(e, 20, g.RuntimePID(), "1")
	if err := g.StartRuntime(g.ctx); err != nil {
		t.Fatal(err)
	}
	g.finished(e)
	g.finishes(e, 40, "$gc", "137")
	g.finished(e)
}

// left asserts the content of the runtime, the log directories and the kernel.
func (g *garbage) left(e *expected) {
	g.t.Helper()
	all, err := g.Inventory(g.ctx)
	if err != nil {
		g.t.Fatal(err)
	}
	var containers, sandboxes, images []string
	for _, c := range all.Containers {
		containers = append(containers, c.Id)
	}
	for _, s := range all.Sandboxes {
		sandboxes = append(sandboxes, s.Id)
	}
	for _, i := range all.Images {
		images = append(images, i.RepoTags...)
	}
	want := []string{vm.ImagePause, vm.ImageWorkload}
	for _, image := range e.kept {
		want = append(want, gcTag(image))
	}
	g.compareLists("containers left", containers, slices.Concat(e.running, e.dead))
	g.compareLists("sandboxes left", sandboxes, e.ready)
	g.compareLists("images left", images, want)
	for _, entry := range e.foreign {
		g.shell("test -e /var/log/pods/" + entry)
	}
	g.shell("test -e /var/log/pods/my_app_logs/precious && test -e /etc/passwd && test -e /lib/modules/load")
	for i := range e.logs {
		g.shell("! test -e /var/log/pods/" + e.logs[i] + " && ! test -e /sys/fs/cgroup/" + e.cgroups[i])
	}
	logs := e.crashing.config.LogDirectory + "/main/"
	g.shell("test -e " + logs + "19.log && ! test -e " + logs + "18.log && ! test -L /var/log/containers/" + e.link + " && test -L /var/log/containers/mine.log")
}

// finishes lets 16 more containers die and kills a process in the middle of the pass that removes
// them. The pass then exits with a code.
func (g *garbage) finishes(e *expected, attempt uint32, process, code string) {
	g.t.Helper()
	for i := range uint32(16) {
		e.dead[0] = g.mustRun(e.crashing, "main", attempt+i, vm.ImageWorkload)
	}
	g.ended(len(e.running))
	dir := g.Runtime.Containers
	// 17 are dead, 16 are removed; the process is killed after the third.
	script := `before=$(ls ` + dir + ` | wc -l); /usr/local/bin/jettison gc --yes -o json > /run/gc.json 2> /run/gc.err & gc=$!
		while [ $(ls ` + dir + ` | wc -l) -gt $((before - 3)) ] && kill -0 $gc; do :; done; kill -9 ` + process + `; wait $gc; echo $?`
	got := strings.TrimSpace(g.shell(script))
	stderr, _ := g.ReadFile(g.ctx, "/run/gc.err", 0)
	g.t.Logf("killed in the middle: exit code %s, %s", got, stderr)
	if got != code {
		g.t.Errorf("exit code of the killed pass = %s, want %s", got, code)
	}
	if code != "1" {
		return
	}
	var out gcOutput
	if text, err := g.ReadFile(g.ctx, "/run/gc.json", 0); err != nil || json.Unmarshal(text, &out) != nil {
		g.t.Fatalf("read the pass's output: %v: %q", err, text)
	}
	done := map[string]int{}
	for _, s := range out.Result.Steps {
		done[s.Outcome]++
	}
	if done["removed"] < 2 || done["removed"] > 14 || done["skipped"] == 0 || !strings.HasPrefix(string(stderr), "jettison: gc: pass aborted") {
		g.t.Errorf("steps by outcome = %v, want 2 to 14 removed and some skipped; stderr %q", done, stderr)
	}
}

// finished asserts that the next pass removes the rest, and keeps the last dead container of the
// crashing pod.
func (g *garbage) finished(e *expected) {
	g.t.Helper()
	if out, code, stderr := g.gc(); code != 0 || len(out.Result.Steps) == 0 {
		g.t.Errorf("the next pass: exit code %d %s, %+v", code, stderr, out.Result)
	} else {
		g.t.Logf("the next pass: %d steps in %.2f s", len(out.Result.Steps), out.Result.TookSeconds)
	}
	all, err := g.Inventory(g.ctx)
	if err != nil {
		g.t.Fatal(err)
	}
	var dead []string
	for _, c := range all.Containers {
		if c.State != cri.ContainerState_CONTAINER_RUNNING {
			dead = append(dead, c.Id)
		}
	}
	g.compareLists("dead containers left", dead, e.dead)
	g.ended(len(e.running))
}

// A pass brings a disk above the high threshold back to the low one by removing images, and stops
// there. It measures the space of an image, because the runtime reports sizes of compressed layers.
func TestGarbageStopsAtTheLowMark(t *testing.T) {
	g := &garbage{node: startNodeWith(t, vm.Options{ImageMiB: 768}), pods: map[string]*gcPod{}, ids: map[string]string{}}
	if err := g.WriteFile(g.ctx, "/etc/jettison/config.yaml", []byte(gcConfigKind+"imageMinimumGCAge: 1s\n")); err != nil {
		t.Fatal(err)
	}
	names := numbered("unused", 12)
	g.importImages(names, 6*mib)
	p := g.run(vm.NewPod("bystander", "", "", "sleep"))
	capacity := 1024 * int64(g.number("df -k "+g.Runtime.Root+" | awk 'NR==2 {print $2}'"))
	usage := func() int64 { return 100 - g.disk(g.Runtime.Root).available*100/capacity }
	// All images together use about 150 MiB of 738.
	g.shell(fmt.Sprintf("busybox fallocate -l %d %s/ballast", g.disk(g.Runtime.Root).available-capacity*12/100, g.Runtime.Root))
	if now := usage(); now < 85 {
		t.Fatalf("the disk is %d%% full before the pass, want it at the high threshold", now)
	}
	var out gcOutput
	var code int
	var stderr string
	g.until("images are old enough to go", func() error {
		if out, code, stderr = g.gc(); len(out.Result.Steps) == 0 {
			return fmt.Errorf("exit code %d, %s, %q", code, stderr, out.Errors)
		}
		return nil
	})
	removed, skipped := 0, 0
	for _, s := range out.Result.Steps {
		switch s.Outcome {
		case "removed":
			removed++
		case "skipped":
			skipped++
		default:
			t.Errorf("unexpected step of the pass: %+v", s)
		}
	}
	t.Logf("%d of %d images, predicted %d bytes, freed %d, in %.2f s; %d planned ones stayed; the disk is %d%% full", removed, len(names), out.Result.PredictedBytes,
		out.Result.FreedBytes, out.Result.TookSeconds, skipped, usage())
	if now := usage(); code != 0 || now > 80 || now < 75 || removed == 0 || removed == len(names) {
		t.Errorf("exit code %d, %s; the disk is %d%% full; %q", code, stderr, now, out.Errors)
	}
	if err := p.Check(g.ctx); err != nil {
		t.Error(err)
	}
}

// The agent's garbage collection alone brings a disk back that reaches its threshold: it removes
// unused images and evicts no pod. The condition becomes true and false again.
func TestPromiseADiskComesBackWithoutAnEviction(t *testing.T) {
	g := &garbage{node: startNodeWith(t, vm.Options{ImageMiB: 768}), pods: map[string]*gcPod{}, ids: map[string]string{}}
	g.importImages(numbered("unused", 12), 6*mib)
	// The periodic pass for images, with its own thresholds, is not due.
	g.startAgent(config(`evictionHard: {imagefs.available: "15%%"}
imageMinimumGCAge: 1s
imageGCPeriod: 24h`))
	g.until("the agent knows the images", func() error { return g.reads("/var/lib/jettison/images.json", "firstDetected") })
	p := g.run(vm.NewPod("bystander", "", "", "fill -size 20Mi /file")) // it uses some of that disk
	capacity := 1024 * int64(g.number("df -k "+g.Runtime.Root+" | awk 'NR==2 {print $2}'"))
	short := func() bool { return g.disk(g.Runtime.Root).available*100 < 15*capacity }
	g.shell(fmt.Sprintf("busybox fallocate -l %d %s/ballast", g.disk(g.Runtime.Root).available-capacity*13/100, g.Runtime.Root))
	if !short() {
		t.Fatal("the disk is not below its threshold, want it short")
	}
	line := g.agentLogs("garbage collected", 1)
	for line.Fields["trigger"] != "diskPressure" {
		t.Logf("%v", line.Fields)
		line = g.agentLogs("garbage collected", 2)
	}
	t.Logf("removed %v of %v, predicted %v bytes, freed %v, in %v", line.Fields["removed"], line.Fields["planned"], line.Fields["predicted"], line.Fields["freed"], line.Fields["took"])
	g.condition("DiskPressure", false)
	if short() {
		t.Error("the disk is still below its threshold")
	}
	for _, l := range g.agentLog() {
		if l.Msg == "evicting" || l.Msg == "evicted" {
			t.Errorf("agent evicted a pod, want none: %v", l.Fields)
		}
	}
	if err := p.Check(g.ctx); err != nil {
		t.Error(err)
	}
}
