package cgroupundo

import (
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"jettison/cgroup"
)

// tree is a cgroup of files, whose notes work.
func tree(t testing.TB, files map[cgroup.LimitFile]string) (g *cgroup.Group, dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		write(t, dir, name, text)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	fs, err := cgroup.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fs.Close() })
	if g, err = fs.Group(""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	if err := g.SetNote(cgroup.Trusted+"try", ""); err != nil {
		t.Skip("no extended attributes here: ", err)
	}
	return g, dir
}

func write(t testing.TB, dir string, name cgroup.LimitFile, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, string(name)), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func says(t testing.TB, dir string, name cgroup.LimitFile) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, string(name)))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func limit(bytes uint64) cgroup.Limit { return cgroup.Limit{Bytes: bytes} }

const file = cgroup.FileMemoryMax

// read is what a process that starts now makes of the file.
func read(t testing.TB, g *cgroup.Group) Control {
	t.Helper()
	c, err := Read(g, file)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// restore puts back what was there before, and notes nothing of it any more, as who needs to tell nobody.
func restore(g *cgroup.Group, files ...cgroup.LimitFile) (changed []cgroup.LimitFile, err error) {
	for _, file := range files {
		c, noted, err := Find(g, file)
		if err != nil {
			return changed, err
		}
		if !noted {
			continue
		}
		put, err := c.Restore()
		if err == nil {
			err = Forget(g, file)
		}
		if err != nil {
			return changed, err
		}
		if put {
			changed = append(changed, file)
		}
	}
	return changed, nil
}

// What was there before outlives any number of values, and processes.
func TestWhatWasBeforeIsPutBack(t *testing.T) {
	for _, before := range []string{"max", "8192", "0"} {
		g, dir := tree(t, map[cgroup.LimitFile]string{file: before + "\n"})
		if c := read(t, g); c.Ours || c.Before != c.Now {
			t.Errorf("nothing was written: %+v", c)
		}
		for _, value := range []uint64{1 << 20, 1 << 30, 4096, 1 << 20} {
			c := read(t, g)
			if changed, err := c.Set(limit(value+5), false); err != nil || !changed || !c.Ours {
				t.Fatalf("%d: %v, %v", value, changed, err)
			}
			if got := says(t, dir, file); got != limit(value).String() || read(t, g).Before.String() != before {
				t.Errorf("says %s, want whole pages of %d; before %v, want %s", got, value, read(t, g).Before, before)
			}
			if again, err := c.Set(limit(value), false); again || err != nil {
				t.Errorf("the same once more: %v, %v", again, err)
			}
		}
		if changed, err := restore(g, cgroup.FilePIDsMax, file); err != nil || len(changed) != 1 || says(t, dir, file) != before {
			t.Errorf("%s: put back %v, %v: %s", before, changed, err, says(t, dir, file))
		}
		if _, noted, err := g.Note(noteName(file)); noted || err != nil {
			t.Errorf("a note is left: %v, %v", noted, err)
		}
		if changed, err := restore(g, file); err != nil || len(changed) > 0 {
			t.Errorf("a second time: %v, %v", changed, err)
		}
	}
}

// A value that somebody else wrote is neither taken for the agent's nor put back over, and is what was before from then on.
func TestWhatAnotherWroteStays(t *testing.T) {
	g, dir := tree(t, map[cgroup.LimitFile]string{file: "max\n"})
	c := read(t, g)
	if _, err := c.Set(limit(1<<20), false); err != nil {
		t.Fatal(err)
	}
	write(t, dir, file, "2097152\n")
	if changed, err := restore(g, file); err != nil || len(changed) > 0 || says(t, dir, file) != "2097152" {
		t.Errorf("put back %v, %v: %s", changed, err, says(t, dir, file))
	}
	c = read(t, g)
	if _, err := c.Set(limit(1<<20), false); err != nil || c.Before != limit(2<<20) {
		t.Fatalf("before %v, %v", c.Before, err)
	}
}

// A container that owns its cgroup's directory leaves notes there as it likes; they are not the agent's.
func TestANoteOfAContainersIsNone(t *testing.T) {
	g, dir := tree(t, map[cgroup.LimitFile]string{file: "1048576\n"})
	text := []byte("max 1048576 1048576")
	if err := unix.Setxattr(dir, "user.jettison.before."+string(file), text, 0); err != nil {
		t.Skip("no extended attributes of users here: ", err)
	}
	if c, err := Read(g, file); err != nil || c.Ours || c.Before != limit(1<<20) {
		t.Errorf("%+v, %v", c, err)
	}
	if changed, err := restore(g, file); err != nil || len(changed) > 0 || says(t, dir, file) != "1048576" {
		t.Errorf("put back %v, %v: %s", changed, err, says(t, dir, file))
	}
	if err := unix.Setxattr(dir, "trusted.jettison.before."+string(file), text, 0); err != nil {
		t.Fatal(err)
	}
	if c, err := Read(g, file); err != nil || !c.Ours {
		t.Errorf("the agent's own: %+v, %v", c, err)
	}
}

// A note may be another version's.
func TestNotesThatAreNotTheAgents(t *testing.T) {
	for _, text := range []string{"", "max", "0 1048576", "max 1048576 x", "-1 1048576 1048576", "max  1048576", "max 1048576" + strings.Repeat(" 0", maxFields-1),
		"99999999999999999999 1048576 1048576", strings.Repeat("9", 128), "max 1048577 4096"} {
		g, dir := tree(t, map[cgroup.LimitFile]string{file: "1048576\n"})
		if err := g.SetNote(noteName(file), text); err != nil {
			t.Fatal(err)
		}
		if c, err := Read(g, file); err != nil || c.Ours || c.Before != limit(1<<20) {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
		if _, err := restore(g, file); err != nil || says(t, dir, file) != "1048576" {
			t.Errorf("%q: %v: %s", text, err, says(t, dir, file))
		}
	}
}

// Without a note nothing is written, and what is not there has no control.
func TestWhatCannotBeNotedIsNotWritten(t *testing.T) {
	g, _ := tree(t, map[cgroup.LimitFile]string{})
	if _, err := Read(g, file); !errors.Is(err, os.ErrNotExist) || errors.Is(err, cgroup.ErrVanished) {
		t.Errorf("%v", err)
	}
	const proc = "/proc/self" // which takes no notes
	fs, err := cgroup.OpenTree(proc)
	if err != nil {
		t.Fatal(err)
	}
	defer fs.Close()
	p, err := fs.Group("")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c := Control{group: p, File: "oom_score_adj", Now: limit(1)}
	if changed, err := c.Set(limit(2), false); err == nil || changed || !strings.Contains(err.Error(), "required before writing the file") {
		t.Errorf("%v, %v", changed, err)
	}
}

// Whatever the agent writes, wherever it crashes, whatever others write, and whatever somebody who was told of a value once writes again:
// what is put back at last is what somebody else left there last. (One who writes the very value that the agent has written before is not
// told from it, so others write other values here.)
func TestNothingOfTheAgentsStays(t *testing.T) {
	g, dir := tree(t, map[cgroup.LimitFile]string{file: "max\n"})
	rapid.Check(t, func(t *rapid.T) {
		put := func(text string) {
			if err := os.WriteFile(filepath.Join(dir, string(file)), []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want := rapid.SampledFrom([]string{"max", "0", "4096"}).Draw(t, "before")
		put(want)
		if err := Forget(g, file); err != nil {
			t.Fatal(err)
		}
		told, untold, noted := want, false, want
		for range rapid.IntRange(0, 10).Draw(t, "steps") {
			value := limit(4096 * rapid.Uint64Range(100, 105).Draw(t, "value"))
			c, err := Read(g, file)
			if err != nil {
				t.Fatal(err)
			}
			switch rapid.SampledFrom([]string{"set", "crash between", "restore", "tell", "write again", "another"}).Draw(t, "step") {
			case "set":
				var changed bool
				if changed, err = c.Set(value, untold); changed {
					untold, noted = true, c.Before.String()
				}
			case "crash between":
				err = g.SetNote(noteName(file), c.note(value, untold))
				untold, noted = true, c.Before.String()
			case "restore":
				var changed bool
				changed, err = c.Restore()
				untold = untold || changed
			case "tell": // and only then nothing is to be noted of what is put back
				if told, untold = c.Now.String(), false; c.Now == c.Before {
					err = Forget(g, file)
				} else {
					err = Told(g, file)
				}
			case "write again":
				// What another has left is not told from what is noted.
				if n, _ := cgroup.ParseLimit([]byte(told)); told == noted || !n.Unlimited && n.Bytes >= 4096*100 && n.Bytes <= 4096*105 {
					put(told)
					want = noted
				}
			case "another":
				want = limit(4096 * rapid.Uint64Range(200, 1<<30).Draw(t, "theirs")).String()
				put(want)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := restore(g, file); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, string(file)))
		if err != nil || strings.TrimSpace(string(b)) != want {
			t.Fatalf("%s is left, want %s, %v", b, want, err)
		}
	})
}

// Whoever was told of a value may write it again whatever the agent wrote, put back and was told since.
func TestAnyValueThatWasToldIsTheAgents(t *testing.T) {
	const before, told, tell, back = "max", 3 << 20, 0, 1
	for _, steps := range [][]uint64{
		{told, tell, 2 << 20}, {told, tell, 2 << 20, 4 << 20, 5 << 20}, {told, tell, back}, {told, tell, back, 2 << 20}, {told, tell, back, 2 << 20, 4 << 20},
		{9 << 20, tell, 8 << 20, 7 << 20, told, tell, back, 2 << 20}, {9 << 20, tell, 8 << 20, 7 << 20, told, tell, 2 << 20, back, 4 << 20, back},
	} {
		g, dir := tree(t, map[cgroup.LimitFile]string{file: before + "\n"})
		untold := false
		for _, step := range steps {
			c, err := Read(g, file)
			switch step {
			case tell:
				untold, err = false, errors.Join(err, Told(g, file))
			case back:
				_, err = c.Restore()
				untold = true
			default:
				_, err = c.Set(limit(step), untold)
				untold = true
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		write(t, dir, file, limit(told).String()+"\n")
		if c := read(t, g); !c.Ours || c.Before.String() != before {
			t.Errorf("%v: %+v", steps, c)
		}
	}
}

// Who does not answer may have heard all the same: whatever was written since the last answer is the agent's, as far as there is room, and
// what was there when the answers ceased in any case.
func TestAnyValueSinceTheLastAnswerIsTheAgents(t *testing.T) {
	for steps, of := range map[int]uint64{6: 1 << 20, 40: 1 << 62} {
		g, dir := tree(t, map[cgroup.LimitFile]string{file: "max\n"})
		for i := range steps {
			c := read(t, g)
			if _, err := c.Set(limit(of+uint64(i)<<20), i > 0); err != nil {
				t.Fatal(err)
			}
			known := []int{0, i}
			for j := 1; j < i && steps == 6; j++ {
				known = append(known, j)
			}
			for _, j := range known {
				write(t, dir, file, limit(of+uint64(j)<<20).String()+"\n")
				if c := read(t, g); !c.Ours || c.Before.String() != "max" {
					t.Errorf("step %d of %d, value %d: %+v", i, steps, j, c)
				}
			}
			write(t, dir, file, limit(of+uint64(i)<<20).String()+"\n")
		}
	}
}

// limitText is what the kernel says of a limit, or a little more: zeros before a number.
var limitText = regexp.MustCompile(`^(max|[0-9]+)\n?$`)

// Nothing is taken from a note but limits as the kernel would say them.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"max 1048576 0", "0 0 0", "max max ", "1 2 3 4", "99999999999999999999 0 0", "-1 0 0", "max\n 1\n 2\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		before, written, ok := parse(text)
		parts := strings.Split(text, " ")
		want := len(parts) >= 3 && len(parts) <= maxFields
		for _, part := range parts {
			n, _ := new(big.Int).SetString(strings.TrimSuffix(part, "\n"), 10)
			want = want && limitText.MatchString(part) && (n == nil || n.IsUint64())
		}
		if ok != want {
			t.Fatalf("%q: taken %v, want %v", text, ok, want)
		}
		for i, l := range append([]cgroup.Limit{before}, written...) {
			if got := strings.TrimLeft(strings.TrimSuffix(parts[min(i, len(parts)-1)], "\n"), "0"); ok && l.String() != got && (got != "" || l.Bytes != 0) {
				t.Fatalf("%q became %v, %v", text, before, written)
			}
		}
	})
}
