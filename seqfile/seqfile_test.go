package seqfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/moby/sys/mountinfo"

	"jettison/seqfile/seqtest"
)

// score returns this process' oom_score_adj.
func score(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// While files are open the process is protected, and after the last one is closed its score is
// restored, even if an open failed.
func TestScoreIsRestored(t *testing.T) {
	before, during := score(t), "-1000"
	if os.WriteFile("/proc/self/oom_score_adj", []byte(during), 0) != nil {
		during = before
		t.Log("NOT TESTED: score of -1000 while files are open. CAP_SYS_RESOURCE is missing")
	} else if err := os.WriteFile("/proc/self/oom_score_adj", []byte(before), 0); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if _, err := Open("/proc/self/no such file"); !errors.Is(err, os.ErrNotExist) {
					t.Error(err)
				}
				one, err := Open("/proc/self/mountinfo")
				if err != nil {
					t.Error(err)
					return
				}
				two, err := OpenAt(int(one.f.Fd()), "/proc/self/limits")
				if err != nil {
					t.Error(err)
				} else {
					two.Close()
				}
				if got := score(t); got != during {
					t.Errorf("score while a file is open = %s, want %s", got, during)
				}
				if text, err := io.ReadAll(one); err != nil || len(text) == 0 {
					t.Errorf("content of the open file = %q, error %v", text, err)
				}
				one.Close()
			}
		})
	}
	all.Wait()
	if got := score(t); got != before {
		t.Errorf("score after the last Close = %s, want %s", got, before)
	}
	if protection.files != 0 || protection.score != nil {
		t.Errorf("protection counts %d open files, score file %v", protection.files, protection.score)
	}
	if !syscall.ForkLock.TryLock() {
		t.Error("fork lock is still held: no child process can start")
	} else {
		syscall.ForkLock.Unlock()
	}
}

// A score that could not be restored is restored by the next reader.
func TestScoreIsRestoredByTheNextReader(t *testing.T) {
	before := score(t)
	refused, err := os.Open("/proc/self/oom_score_adj") // not for writing
	if err != nil {
		t.Fatal(err)
	}
	protection.score, protection.before = refused, []byte(before)
	one, err := Open("/proc/self/limits")
	if err == nil {
		one.Close()
	}
	if err != nil || protection.score != refused {
		t.Fatalf("read with a failing restore: error %v, score file %v", err, protection.score)
	}
	refused.Close()
	if protection.score, err = os.OpenFile("/proc/self/oom_score_adj", os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	if one, err = Open("/proc/self/limits"); err == nil {
		one.Close()
	}
	if got := score(t); err != nil || protection.score != nil || got != before {
		t.Errorf("after the next reader: error %v, score file %v, score %s", err, protection.score, got)
	}
}

// A line too long for the available memory returns ErrLong. All lines before it are read, and
// other threads get the memory that they need meanwhile.
func TestALineThatIsTooLongForTheMemory(t *testing.T) {
	if thread, ok := seqtest.Inside(t); ok {
		stop := make(chan struct{})
		var others sync.WaitGroup
		for range 2 {
			others.Go(func() {
				for kept := [][]byte(nil); ; {
					select {
					case <-stop:
						return
					default:
					}
					if kept = append(kept, make([]byte, 256<<10)); len(kept) == 16 {
						kept = nil
					}
					for i := range kept {
						kept[i][0] = 1
					}
				}
			})
		}
		for range 5 {
			f, err := Open(thread + "/mountinfo")
			// At that moment the buffer has all memory: others get an error, not the end of the
			// file. A file without memory for its inode is reported as absent (v6.12
			// fs/proc/base.c proc_pident_instantiate).
			if errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ENOENT) {
				fmt.Printf("said: false, true, read /proc/: %v\n", err)
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(Mounts(f))
			n := 0
			for ; lines.Scan(); n++ {
			}
			fmt.Printf("said: %v, %v, %v\n", n > 0, errors.Is(lines.Err(), ErrLong), lines.Err())
			f.Close()
		}
		close(stop)
		others.Wait()
		return
	}
	out, peak, err := seqtest.WithinProtected(t, 64<<20, seqtest.Mounted(t))
	// With no memory at all, the lines before cannot be read either.
	if n := strings.Count(out, ", true, read /proc/"); n != 5 || !strings.Contains(out, "said: true") || err != nil {
		t.Errorf("error %v, %d of 5 files were read, peak %.1f MiB, output:\n%.2000s", err, n, float64(peak)/(1<<20), out)
	}
}

// Lines are passed unchanged, except for paths that are too long; lines that are still too long
// are left out.
func TestMountsWithLongLines(t *testing.T) {
	const plain = "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"
	far := "/" + strings.Repeat("d", 100<<10)
	for text, want := range map[string]string{
		"":                                 "",
		plain:                              plain,
		plain + plain + "1 2 3:4 / / rw -": plain + plain + "1 2 3:4 / / rw -",
		"\n" + plain:                       "\n" + plain,
		"1 2 3:4 " + far + " /m rw - t d o\n" + plain:                           "1 2 3:4 // /m rw - t d o\n" + plain,
		"1 2 3:4 / " + far + " rw - t d o\n" + plain:                            "1 2 3:4 / // rw - t d o\n" + plain,
		"1 2 3:4 " + far + " " + far + " rw - t d o":                            "1 2 3:4 // // rw - t d o",
		plain + "1 2 3:4 / /m rw - t d " + far + "\n" + plain:                   plain + plain,
		plain + "1 2 3:4 / /m rw - t d " + far:                                  plain,
		"1 2 3:4 " + far + "\n" + plain:                                         "1 2 3:4 //\n" + plain,
		"1 2 3:4 /" + far[:maxPath-1] + " /m rw - t d o\n":                      "1 2 3:4 /" + far[:maxPath-1] + " /m rw - t d o\n",
		"1 2 3:4 /" + far[:maxPath] + " /m rw - t d o\n":                        "1 2 3:4 // /m rw - t d o\n",
		"1 2 3:4 / /m rw - overlay overlay " + far[:60<<10] + "\n":              "1 2 3:4 / /m rw - overlay overlay " + far[:60<<10] + "\n",
		strings.Repeat("x", bufio.MaxScanTokenSize) + "\n" + plain:              plain,
		"1 2 3:4 / /m rw - t d " + strings.Repeat("x y ", 1<<15) + "\n" + plain: plain,
	} {
		got, err := io.ReadAll(Mounts(strings.NewReader(text)))
		if string(got) != want || err != nil {
			t.Errorf("Mounts of %.60q = %.200q, want %.200q, error %v", text, got, want, err)
		}
	}
	broken := errors.New("broken")
	got, err := io.ReadAll(Mounts(io.MultiReader(strings.NewReader(plain+"1 2 3:4 / /m"), errorReader{broken})))
	if string(got) != plain || err != broken {
		t.Errorf("Mounts of a failing reader = %q, error %v, want the complete lines and the error", got, err)
	}
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

// For any input, a scanner accepts each line, and no line is made of two.
func FuzzMounts(f *testing.F) {
	f.Add([]byte("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"), 1)
	f.Add([]byte("1 2 3:4 /dddd /m rw - t d o\n"), 5000)
	f.Fuzz(func(t *testing.T, text []byte, times int) {
		text = []byte(strings.ReplaceAll(string(text), "d", strings.Repeat("d", max(0, min(times, 1<<16)))))
		if len(text) > 1<<20 {
			return
		}
		in, out := strings.Count(string(text), "\n"), 0
		lines := bufio.NewScanner(Mounts(strings.NewReader(string(text))))
		for ; lines.Scan(); out++ {
		}
		if lines.Err() != nil || out > in+1 {
			t.Errorf("Mounts returned %d lines of %d, error %v", out, in, lines.Err())
		}
		_, _ = mountinfo.GetMountsFromReader(Mounts(strings.NewReader(string(text))), nil) // it may fail, not panic
	})
}
