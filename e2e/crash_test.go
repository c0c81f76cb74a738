package e2e

import (
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"jettison/e2e/vm"
)

// seedVariable repeats the runs of a failure. firstVariable starts with a later run than 0. The
// test prints both.
const (
	seedVariable  = "JETTISON_SEED"
	firstVariable = "JETTISON_FIRST"
)

// crashSettings make everything happen within seconds. The manifests name the pods that must stay,
// also across a reboot.
const crashSettings = `apiVersion: jettison/v1alpha1
kind: AgentConfiguration
evictionHard: {memory.available: 100Mi}
evictionPressureTransitionPeriod: 1s
runtimeWait: 5m # nothing starts the agent again
staticPodPath: /etc/kubernetes/manifests
containerGCPeriod: 5s
imageGCPeriod: 5s
podGoneAfter: 1s
imageMinimumGCAge: 1s
imageGCHighThresholdPercent: 1
imageGCLowThresholdPercent: 0
containerLogMaxSize: 20Ki
containerLogMaxFiles: 1000
`

const crashAgentLog = "/var/log/agent.log"

// crashStep is a step of the agent's work that a crash interrupts.
type crashStep struct {
	what string
	leak bool // a pod leaks, and is evicted
	junk bool // there are unused images
	// text returns a string in the arguments of the step's system calls. most is the minimum number
	// of such calls.
	text func(*crashes) string
	most int
}

func constant(text string) func(*crashes) string { return func(*crashes) string { return text } }

var crashSteps = []crashStep{
	{what: "a pass, a container", most: 3, text: func(c *crashes) string { return c.dead[c.random.Intn(len(c.dead))] }},
	{what: "a pass, a sandbox", most: 2, text: func(c *crashes) string { return c.gone.sandbox }},
	{what: "a pass, logs", most: 2, text: func(c *crashes) string { return "gone-" + strconv.Itoa(c.run) + "_" }},
	{what: "a pass, an image", junk: true, most: 1, text: func(c *crashes) string { return c.ids[gcTag("junk-0")] }},
	{what: "a rotation", most: 7, text: func(c *crashes) string { return fmt.Sprintf("%d.log.", c.attempt) }},
	{what: "a rotation, the runtime", most: 1, text: func(c *crashes) string { return c.talking }},
	{what: "a record", leak: true, most: 3, text: constant("records.jsonl")},
	{what: "the state", leak: true, most: 5, text: constant("state.json")},
	{what: "ages of images", junk: true, most: 5, text: constant("images.json")},
	{what: "quiet pods", most: 5, text: constant("quiet-pods.json")},
}

// crashKinds are the crashes. Each returns when the agent runs again or is about to.
var crashKinds = []struct {
	what string
	do   func(*crashes)
}{
	{"the agent is killed", (*crashes).killAgent},
	{"the runtime is killed", (*crashes).killRuntime},
	{"the disk is full", (*crashes).fillDisk},
	{"the clock is stepped", (*crashes).stepClock},
	{"the power is cut", (*crashes).cutPower},
}

// crashes is a node on which a failure occurs while the agent is at a step.
type crashes struct {
	*garbage
	random *rand.Rand
	run    int  // from 0 on
	begun  bool // an earlier run has left state of the agent
	missed int  // runs that did not reach the step

	pid, tracer int // of the agent and of the tracer that stops it, in the guest
	offset      int // of the agent's log, where this run begins

	attempt          uint32 // of the containers that run
	talker, crashing *gcPod
	talking          string // the talker's container
	booted           bool   // the node rebooted and the talker does not run yet: its next attempt cleans up partly compressed logs
	running          []string
	deaths           uint32 // of the crashing pod
	lastDead         string
	gone             *gcPod
	leaker           string   // a sandbox; empty: none
	dead             []string // containers that must be removed, by ID
	doomed           []string // sandboxes that must be removed
	doomedFiles      []string
	lines            int               // of the talker that were on the disk when this run began
	records          map[string]string // that were complete then, by ID
}

// After any failure at any step of the agent, everything that must stay is kept, and everything
// that must be removed is removed in the end.
//
// ptrace stops the agent right before or after one system call of the step. Then the failure
// occurs, and the agent continues or is killed there. JETTISON_TRIALS is the number of runs: 100
// cover each crash at each step twice. JETTISON_SEED repeats them, JETTISON_FIRST starts with a
// later run.
func TestNothingIsLostInACrash(t *testing.T) {
	seed := time.Now().UnixNano()
	if n, err := strconv.ParseInt(os.Getenv(seedVariable), 10, 64); err == nil {
		seed = n
	}
	t.Logf("%s=%d", seedVariable, seed)
	disk := filepath.Join(t.TempDir(), "disk.qcow2")
	c := &crashes{garbage: &garbage{node: startNodeWith(t, vm.Options{Disk: disk}), pods: map[string]*gcPod{}, ids: map[string]string{}}}
	c.oomMeant = true // a leak continues while the agent is stopped
	c.records = map[string]string{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("agent's log:\n" + c.Tail(crashAgentLog, 60))
		}
	})
	c.setUp()
	runs := trials(8)
	first, _ := strconv.Atoi(os.Getenv(firstVariable))
	for c.run = first; c.run < first+runs; c.run++ {
		c.random = rand.New(rand.NewSource(seed + int64(c.run)))
		c.oneRun(&crashSteps[(c.run+c.run/10)%len(crashSteps)], c.run%len(crashKinds))
		if t.Failed() {
			t.Fatalf("failed: repeat this run with %s=%d %s=%d", firstVariable, c.run, seedVariable, seed)
		}
		c.begun = true
	}
	t.Logf("%d runs, %d of them missed the step", runs, c.missed)
	if c.missed*4 > runs {
		t.Errorf("%d of %d runs did not reach their step", c.missed, runs)
	}
}

// setUp makes the pods that must stay: one that logs all the time, with an image that no other pod
// uses, and one that crashes.
func (c *crashes) setUp() {
	if err := c.WriteFile(c.ctx, "/etc/jettison/config.yaml", []byte(crashSettings)); err != nil {
		c.t.Fatal(err)
	}
	c.importImages([]string{"used"}, mib/16)
	c.live()
	for _, p := range []*gcPod{c.talker, c.crashing} {
		m := p.config.Metadata
		containers := "[{name: talk, image: x}, {name: used, image: x}]"
		if p == c.crashing {
			containers = "[{name: main, image: x}, {name: side, image: x}]"
		}
		text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: default, uid: %s}\nspec: {containers: %s}\n", m.Name, m.Uid, containers)
		if err := c.WriteFile(c.ctx, "/etc/kubernetes/manifests/"+m.Name+".yaml", []byte(text)); err != nil {
			c.t.Fatal(err)
		}
	}
}

// live starts the permanent pods, after a reboot as a kubelet would, in new sandboxes.
func (c *crashes) live() {
	c.talker, c.crashing = c.sandbox("talker", c.attempt), c.sandbox("crashing", c.attempt)
	c.talking = c.mustRun(c.talker, "talk", c.attempt, vm.ImageWorkload, strings.Fields("log -number -rate 8Ki -line 100")...)
	c.running = []string{
		c.talking, c.mustRun(c.talker, "used", c.attempt, gcTag("used"), "sleep"), c.mustRun(c.crashing, "side", c.attempt, vm.ImageWorkload, "sleep"),
	}
}

// oneRun makes one failure occur at one step.
func (c *crashes) oneRun(step *crashStep, kind int) {
	began := time.Now()
	c.litter(step)
	text, count := step.text(c), 1+c.random.Intn(step.most)
	when := []string{"before", "after"}[c.random.Intn(2)]
	c.startAgentProcess()
	c.trace(text, count, when)
	if step.leak { // only a started agent keeps the node
		c.until("the agent has started", func() error {
			text, err := c.ReadFile(c.ctx, crashAgentLog, c.offset)
			if err == nil && !strings.Contains(string(text), `"msg":"started"`) {
				err = fmt.Errorf("agent's log: %s", text)
			}
			return err
		})
		p := c.sandbox(fmt.Sprint("leaker-", c.run), 0)
		c.mustRun(p, "main", 0, vm.ImageWorkload, strings.Fields("alloc -rate 200Mi -size 4Gi")...)
		c.leaker = p.sandbox
		c.expectRemoved(p)
	}
	met := c.awaitStep()
	if met == "" {
		c.missed++
		met = "not met: at any moment"
	}
	c.t.Logf("run %d: %s, at %s, %d of %.64q: %s", c.run, crashKinds[kind].what, step.what, count, text, met)
	crashKinds[kind].do(c)
	c.awaitSettled()
	c.expectKept()
	c.endAgent()
	c.t.Logf("run %d: everything is kept after %.0f s", c.run, time.Since(began).Seconds())
}

// litter makes the garbage and syncs it to the disk.
func (c *crashes) litter(step *crashStep) {
	c.dead, c.doomed, c.doomedFiles, c.leaker = nil, nil, nil, ""
	for range 4 {
		if c.lastDead != "" {
			c.dead = append(c.dead, c.lastDead)
		}
		c.lastDead = c.mustRun(c.crashing, "main", c.deaths, vm.ImageWorkload)
		c.deaths++
	}
	c.gone = c.sandbox(fmt.Sprint("gone-", c.run), 0)
	id := c.mustRun(c.gone, "main", 0, vm.ImageWorkload)
	c.expectRemoved(c.gone)
	link := fmt.Sprintf("/var/log/containers/gone-%d_default_main-%s.log", c.run, id)
	c.shell(fmt.Sprintf("mkdir -p /var/log/containers && busybox ln -s %s/main/0.log %s", c.gone.config.LogDirectory, link))
	c.doomedFiles = append(c.doomedFiles, link)
	c.stop(c.gone)
	if step.junk {
		delete(c.ids, gcTag("junk-0"))
		c.importImages([]string{"junk-0"}, mib/8) // of another size, else it would be the same image
	}
	c.shell("busybox sync")
	c.lines = c.countLogLines()
	c.records = c.wholeRecords()
	c.shell("busybox sync")
}

// expectRemoved marks a pod, with all that belongs to it, as one that must be removed.
func (c *crashes) expectRemoved(p *gcPod) {
	c.doomed = append(c.doomed, p.sandbox)
	c.doomedFiles = append(c.doomedFiles, p.config.LogDirectory)
}

func (c *crashes) startAgentProcess() {
	text, err := c.ReadFile(c.ctx, crashAgentLog, 0)
	if c.offset = len(text); err != nil {
		c.offset = 0 // the first
	}
	if c.pid, err = c.Start(c.ctx, crashAgentLog, "/usr/local/bin/jettison", "run", "--log-format=json", "--config=/etc/jettison/config.yaml"); err != nil {
		c.t.Fatal(err)
	}
}

const traceOutput = "/run/stop-at.txt"

// trace makes the agent stop at a step.
func (c *crashes) trace(text string, count int, when string) {
	c.shell("rm -f " + traceOutput)
	var err error
	c.tracer, err = c.Start(c.ctx, traceOutput, "/sbin/init", "stop-at", strconv.Itoa(c.pid), text, strconv.Itoa(count), when)
	if err != nil {
		c.t.Fatal(err)
	}
	c.until("the agent is traced", func() error { return c.reads(traceOutput, "tracing") })
}

// awaitStep waits until the agent is stopped at its step and returns the place. It returns "" if the
// agent did not reach the step.
func (c *crashes) awaitStep() string {
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		text, err := c.ReadFile(c.ctx, traceOutput, 0)
		if err == nil && strings.Contains(string(text), "stopped") {
			return strings.Join(strings.Fields(strings.TrimPrefix(string(text), "tracing\n")), " ")
		}
	}
	return ""
}

// continueAgent continues the agent.
func (c *crashes) continueAgent() { c.shell(fmt.Sprintf("kill -9 %d", c.tracer)) }

func (c *crashes) killAgent() {
	c.shell(fmt.Sprintf("kill -9 %d; kill -9 %d", c.pid, c.tracer))
	c.waitEnd()
	c.startAgentProcess()
}

// endAgent ends the agent as root or a service manager does.
func (c *crashes) endAgent() {
	c.shell(fmt.Sprintf("kill -%s %d", []string{"KILL", "TERM"}[c.random.Intn(2)], c.pid))
	c.waitEnd()
}

func (c *crashes) waitEnd() {
	c.until("the agent has ended", func() error {
		if res, err := c.Exec(c.ctx, "/bin/sh", "-c", fmt.Sprintf("kill -0 %d", c.pid)); err != nil || res.Code == 0 {
			return fmt.Errorf("the agent has not ended (%w)", err)
		}
		return nil
	})
}

// quiet silences the talker and waits until its whole output is in its log. Output that a dying
// runtime or a full disk loses is not the agent's fault.
func (c *crashes) quiet(silent bool) {
	c.shell(fmt.Sprintf("echo %d > /sys/fs/cgroup%s/cgroup.freeze", map[bool]int{true: 1}[silent], c.talker.config.Linux.CgroupParent))
	before := uint64(0)
	for silent {
		now := c.number(fmt.Sprintf("cat %s/talk/* | wc -c", c.talker.config.LogDirectory))
		if now == before {
			return
		}
		before = now
		time.Sleep(300 * time.Millisecond)
	}
}

func (c *crashes) killRuntime() {
	c.quiet(true)
	if err := c.StopRuntime(c.ctx); err != nil {
		c.t.Fatal(err)
	}
	c.continueAgent()
	if err := c.StartRuntime(c.ctx); err != nil {
		c.t.Fatal(err)
	}
	c.quiet(false)
}

// fillDisk fills every block of the disk, lets the agent run into that, and frees the space again.
// The runtime and the agent's threads that are not stopped continue meanwhile, and the blocks that
// they free are filled, too.
func (c *crashes) fillDisk() {
	c.quiet(true)
	c.shell(`mkdir -p /var/ballast && cd /var/ballast && busybox fallocate -l $(($(busybox stat -f -c '%f * %S' /var) - 67108864)) one
		for i in 1 2 3 4 5 6 7 8 9 10; do
			dd if=/dev/zero of=rest.$i bs=65536 2>/dev/null # the kernel keeps 16 MiB
			dd if=/dev/zero of=last.$i bs=4096 count=1 2>/dev/null || exit 0
		done; echo 'a block is free after ten times'; exit 1`)
	c.continueAgent()
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if text, err := c.ReadFile(c.ctx, crashAgentLog, c.offset); err == nil && strings.Contains(string(text), "no space left") {
			break
		}
	}
	c.shell("rm -r /var/ballast && busybox sync")
	c.quiet(false)
}

func (c *crashes) stepClock() {
	step := []time.Duration{5 * time.Hour, -5 * time.Hour, 3 * 365 * 24 * time.Hour, -3 * 365 * 24 * time.Hour}[c.random.Intn(4)]
	c.setClock(time.Now().Add(step))
	c.t.Logf("the clock is stepped by %v", step)
	before := len(c.shell("cat " + crashAgentLog))
	c.continueAgent()
	c.until("the agent has done something by that clock", func() error {
		if text, err := c.ReadFile(c.ctx, crashAgentLog, before); err != nil || len(text) == 0 {
			return fmt.Errorf("the agent has logged nothing (%w)", err)
		}
		return nil
	})
	c.listNode("by another clock")
}

func (c *crashes) setClock(to time.Time) { c.shell(fmt.Sprintf("busybox date -s @%d", to.Unix())) }

// cutPower cuts the power, checks the disk before and after an agent has run on it, and restarts
// the pods.
func (c *crashes) cutPower() {
	if err := c.CutPower(c.ctx); err != nil {
		c.t.Fatal(err)
	}
	c.listNode("after the boot")
	c.countWholeLines(c.lines, true)
	c.startAgentProcess()
	c.booted = true
	c.awaitSettled()
	c.booted = false
	c.listNode("after the boot and a pass")
	c.countWholeLines(c.lines, true)
	c.attempt++
	c.lines = 0
	c.live()
}
