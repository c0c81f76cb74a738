// Command workload runs in the test node's pods. Its arguments are behaviours, run side by side and
// joined by "+":
//
//	workload ignore-sigterm + heartbeat /run/beat + alloc -rate 20Mi -size 500Mi
//
// Each behaviour runs until the process is killed. One that fails prints its error on stderr and
// ends the process with 1.
package main

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// behaviours by name. Each sets up from its arguments, then runs for as long as the process lives.
var behaviours = map[string]struct {
	usage string
	run   func(args []string) error
}{
	"alloc":          {"[-rate BYTES] [-size BYTES]: touch anonymous memory, BYTES a second (0: at full speed) up to a size, and hold it", alloc},
	"fill":           {"[-after DURATION] [-on-usr1] [-allocate] [-unlink] [-map] [-rate BYTES] [-size BYTES] FILE: write a file (on tmpfs: memory; on disk: bytes) and keep it; -allocate: take blocks without writing them; -unlink: without a name; -map: by a mapping, not a descriptor", fill},
	"inodes":         {"[-rate N] [-count N] DIR: create empty files", inodes},
	"processes":      {"[-rate N] [-count N]: start processes that sleep", processes},
	"threads":        {"[-rate N] [-count N]: start threads that sleep", threads},
	"spin":           {"[-threads N]: burn CPU", spin},
	"log":            {"[-rate BYTES] [-line BYTES] [-size BYTES] [-number]: write lines to stdout up to a size; -number: number them from 1", logLines},
	"thrash":         {"[-map] [-size BYTES] FILE: write a file, then read it repeatedly so that its pages refault; -map: read one byte of each page of a mapping, in random order", thrash},
	"bomb":           {"[-generations N]: fork in each process until 2^N processes exist", bomb},
	"burst":          {"[-after DURATION] [-on-usr1] [-size BYTES]: allocate anonymous memory immediately, after a delay or after SIGUSR1, and keep it", burst},
	"herd":           {"[-after DURATION] [-on-usr1] [-count N] [-each BYTES]: start processes that each allocate memory at the same time and keep it", processGroup},
	"stamp":          {"[-every DURATION] [-file FILE]: write the time to stdout (nanoseconds of CLOCK_MONOTONIC), and then to FILE", stamp},
	"ignore-sigterm": {": ignore SIGTERM", ignoreSIGTERM},
	"on-sigterm":     {"[-after DURATION] FILE: at SIGTERM write the time to FILE (nanoseconds of CLOCK_MONOTONIC), exit with 0 after the delay (0: never)", onSIGTERM},
	"churn":          {"DIR: create and remove cgroups of pods in a cgroup, repeatedly", churn},
	"besiege":        {"SOCKET: connect a thousand clients to the agent socket that send incomplete requests", flood},
	"fork-dying":     {": start a child that forks another one and exits, repeatedly", forkDying},
	"heartbeat":      {"[-every DURATION] FILE: write a counter to FILE", heartbeat},
	"leak":           {"FIFO: create a FIFO, and leak at the rate in bytes per second that was written to it last (0: at full speed); free: release all", leak},
	"again":          {"BEHAVIOUR [ARGUMENTS]: run it in a separate process, and restart it when that is killed", supervise},
	"net":            {"-listen ADDR | -send BYTES -to ADDR: receive over TCP, or send BYTES and then do nothing", network},
	"sleep":          {": do nothing", func([]string) error { select {} }},
	"relay":          {"", relay}, // the child of fork-dying
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: workload BEHAVIOUR [ARGUMENTS] [+ BEHAVIOUR ...]")
		for _, name := range slices.Sorted(maps.Keys(behaviours)) {
			if u := behaviours[name].usage; u != "" {
				fmt.Fprintln(os.Stderr, "  "+name+" "+u)
			}
		}
		os.Exit(2)
	}
	failed := make(chan error)
	go func() { // reaps, and keeps the Go runtime from reporting a deadlock of sleepers
		children := make(chan os.Signal, 64)
		signal.Notify(children, syscall.SIGCHLD)
		for range children {
			for {
				if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
					break
				}
			}
		}
	}()
	for part := range splitSeq(os.Args[1:], "+") {
		b, ok := behaviours[part[0]]
		if !ok {
			fmt.Fprintf(os.Stderr, "workload: no behaviour %q\n", part[0])
			os.Exit(2)
		}
		go func() {
			if err := b.run(part[1:]); err != nil {
				failed <- fmt.Errorf("%s: %w", part[0], err)
			}
		}()
	}
	fmt.Fprintln(os.Stderr, "workload:", <-failed)
	os.Exit(1)
}

func splitSeq(args []string, sep string) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		for len(args) > 0 {
			i := slices.Index(args, sep)
			if i < 0 {
				i = len(args)
			}
			if i > 0 && !yield(args[:i]) {
				return
			}
			args = args[min(i+1, len(args)):]
		}
	}
}

// size is a flag in bytes, with Ki, Mi and Gi.
type size int64

func (s *size) String() string { return strconv.FormatInt(int64(*s), 10) }
func (s *size) Set(text string) error {
	scale := int64(1)
	for suffix, by := range map[string]int64{"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			text, scale = rest, by
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	*s = size(n * scale)
	return err
}

// paced calls step until total units are done, at most rate units a second, in steps of at most chunk; rate 0: no pause.
func paced(total, rate, chunk int64, step func(n int64) error) error {
	start := time.Now()
	for done := int64(0); done < total; {
		n := min(chunk, total-done)
		if err := step(n); err != nil {
			return err
		}
		done += n
		if rate > 0 {
			time.Sleep(time.Until(start.Add(time.Duration(float64(done) / float64(rate) * float64(time.Second)))))
		}
	}
	select {}
}

func amounts(name string, args []string, total size) (*flag.FlagSet, *size, *size, error) {
	f, rate, all := flags(name, total)
	return f, rate, all, f.Parse(args)
}

func flags(name string, total size) (f *flag.FlagSet, rate, all *size) {
	rate, all = new(size), &total
	f = flag.NewFlagSet(name, flag.ContinueOnError)
	f.Var(rate, "rate", "a second; 0: at full speed")
	f.Var(all, "size", "in all")
	f.Var(all, "count", "in all")
	return f, rate, all
}

func alloc(args []string) error {
	_, rate, total, err := amounts("alloc", args, 64<<20)
	if err != nil {
		return err
	}
	return paced(int64(*total), int64(*rate), 256<<10, func(n int64) error {
		b, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			return err
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = byte(i>>12) | 1
		}
		return nil
	})
}

func fill(args []string) error {
	f, rate, total := flags("fill", 64<<20)
	allocate := f.Bool("allocate", false, "")
	unlink := f.Bool("unlink", false, "")
	mapped := f.Bool("map", false, "")
	var start trigger
	start.flags(f)
	if err := f.Parse(args); err != nil {
		return err
	}
	start.ready()()
	file, err := os.OpenFile(f.Arg(0), os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if *unlink {
		if err := os.Remove(f.Arg(0)); err != nil {
			return err
		}
	}
	if *mapped {
		return fillMapped(file, int64(*total))
	}
	block := make([]byte, 256<<10)
	for i := range block {
		block[i] = byte(i * 7)
	}
	var at int64
	return paced(int64(*total), int64(*rate), int64(len(block)), func(n int64) (err error) {
		if at += n; *allocate {
			return unix.Fallocate(int(file.Fd()), 0, at-n, n)
		}
		_, err = file.Write(block[:n])
		return err
	})
}

// fillMapped allocates the blocks of a file and keeps it only by a mapping.
func fillMapped(file *os.File, size int64) error {
	if err := unix.Fallocate(int(file.Fd()), 0, 0, size); err != nil {
		return err
	}
	if _, err := unix.Mmap(int(file.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	select {}
}

func inodes(args []string) error {
	f, rate, total, err := amounts("inodes", args, 1000)
	if err != nil {
		return err
	}
	var i int64
	return paced(int64(*total), int64(*rate), 1, func(int64) error {
		i++
		file, err := os.Create(filepath.Join(f.Arg(0), "f"+strconv.FormatInt(i, 10)))
		if err != nil {
			return err
		}
		return file.Close()
	})
}

func processes(args []string) error {
	_, rate, total, err := amounts("processes", args, 10)
	if err != nil {
		return err
	}
	return paced(int64(*total), int64(*rate), 1, func(int64) error {
		return exec.Command("/proc/self/exe", "sleep").Start()
	})
}

func threads(args []string) error {
	_, rate, total, err := amounts("threads", args, 10)
	if err != nil {
		return err
	}
	return paced(int64(*total), int64(*rate), 1, func(int64) error {
		go func() {
			runtime.LockOSThread() // a separate thread
			for {
				_ = unix.Pause()
			}
		}()
		return nil
	})
}

func spin(args []string) error {
	f := flag.NewFlagSet("spin", flag.ContinueOnError)
	n := f.Int("threads", 1, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	runtime.GOMAXPROCS(*n + 2)
	for range *n {
		go func() {
			for x := uint64(1); ; {
				x = x*6364136223846793005 + 1442695040888963407
			}
		}()
	}
	select {}
}

func logLines(args []string) error {
	f := flag.NewFlagSet("log", flag.ContinueOnError)
	rate, line, total := size(1<<20), size(120), size(1<<62)
	f.Var(&rate, "rate", "")
	f.Var(&total, "size", "")
	f.Var(&line, "line", "")
	number := f.Bool("number", false, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	text := []byte(strings.Repeat("x", int(max(line, 1))-1) + "\n")
	written := 0
	return paced(int64(total), int64(rate), int64(len(text)), func(n int64) error {
		if written++; *number {
			copy(text[:len(text)-1], fmt.Sprintf("%d ", written))
		}
		_, err := os.Stdout.Write(text[:n])
		return err
	})
}

func thrash(args []string) error {
	f := flag.NewFlagSet("thrash", flag.ContinueOnError)
	total := size(128 << 20)
	f.Var(&total, "size", "")
	mapped := f.Bool("map", false, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	file, err := os.OpenFile(f.Arg(0), os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	block := make([]byte, 256<<10)
	for done := int64(0); done < int64(total); done += int64(len(block)) {
		if _, err := file.Write(block); err != nil {
			return err
		}
	}
	if err := file.Sync(); err != nil { // clean pages can be dropped, and so refault
		return err
	}
	if *mapped {
		return touch(file, int(total))
	}
	for {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		for {
			if _, err := file.Read(block); err == io.EOF {
				break
			} else if err != nil {
				return err
			}
		}
	}
}

// touch reads a byte of each page of a file, in pseudo-random order.
func touch(file *os.File, size int) error {
	text, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	if err := unix.Madvise(text, unix.MADV_RANDOM); err != nil {
		return err
	}
	pages, sum := uint64(size)/uint64(os.Getpagesize()), byte(0)
	for at := uint64(1); ; at = at*6364136223846793005 + 1442695040888963407 { // Knuth's MMIX
		sum += text[at>>32%pages*uint64(os.Getpagesize())]
		runtime.KeepAlive(sum)
	}
}

func heartbeat(args []string) error {
	f := flag.NewFlagSet("heartbeat", flag.ContinueOnError)
	every := f.Duration("every", 200*time.Millisecond, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	file, err := os.OpenFile(f.Arg(0), os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		if _, err := file.WriteAt([]byte(strconv.Itoa(n)+"\n"), 0); err != nil {
			return err
		}
		time.Sleep(*every)
	}
}
