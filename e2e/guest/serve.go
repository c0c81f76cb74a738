package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"jettison/e2e/guestapi"
)

// serve starts the runtime if requested, the two socket forwarders, the registry and the HTTP
// service. It returns only on an error.
func serve(runtime bool) error {
	// The service must survive an OOM kill on the node to keep it observable.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0o644)
	_ = unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT)
	if runtime {
		if _, err := startRuntime(); err != nil {
			return err
		}
	}
	for port, socket := range map[int]string{guestapi.PortCRI: installedRuntime().Socket, guestapi.PortAgent: guestapi.AgentSocket} {
		if err := forward(port, socket); err != nil {
			return err
		}
	}
	s := &service{sampler: newSampler(), registry: newRegistry()}
	if err := s.registry.listen(guestapi.Registry); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /exec", s.exec)
	mux.HandleFunc("POST /runtime", s.runtime)
	mux.HandleFunc("POST /registry", s.offer)
	mux.HandleFunc("GET /file", s.readFile)
	mux.HandleFunc("PUT /file", s.writeFile)
	mux.HandleFunc("GET /memory", s.memory)
	mux.HandleFunc("POST /ballast", s.ballast)
	mux.HandleFunc("POST /sample/start", s.startSample)
	mux.HandleFunc("POST /sample/stop", s.stopSample)
	l, err := net.Listen("tcp", ":"+strconv.Itoa(guestapi.PortControl))
	if err != nil {
		return err
	}
	fmt.Println("guest: ready") // the harness waits for this line on the console
	return http.Serve(l, mux)
}

type service struct {
	sampler  *sampler
	registry *registry
}

func reply(w http.ResponseWriter, value any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(value)
}

func (s *service) exec(w http.ResponseWriter, r *http.Request) {
	var req guestapi.ExecRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || len(req.Argv) == 0 {
		http.Error(w, fmt.Sprintf("exec request: %v", err), http.StatusBadRequest)
		return
	}
	reply(w, run(r.Context(), req), nil)
}

func run(ctx context.Context, req guestapi.ExecRequest) guestapi.ExecResult {
	if req.Detach != "" {
		pid, err := detach(req.Argv, req.Detach)
		if err != nil {
			return guestapi.ExecResult{Code: -1, Error: err.Error()}
		}
		return guestapi.ExecResult{PID: pid}
	}
	if req.Limit <= 0 {
		req.Limit = time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, req.Limit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, req.Argv[0], req.Argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(req.Stdin), &stdout, &stderr
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	res := guestapi.ExecResult{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), Code: -1}
	if cmd.ProcessState != nil {
		res.PID = cmd.ProcessState.Pid()
		res.Code = cmd.ProcessState.ExitCode()
		if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			res.Code = 128 + int(ws.Signal())
		}
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		res.Error = fmt.Sprintf("killed, not finished within %v", req.Limit)
	case err != nil && !errors.As(err, &exit):
		res.Error = err.Error()
	}
	return res
}

// detach starts argv in a separate session with its output appended to a file, and reaps it when it
// ends.
func detach(argv []string, output string) (pid int, err error) {
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return 0, err
	}
	f, err := os.OpenFile(output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	// Ends with the command; the guest's init ends only with the whole node.
	go func() { _ = cmd.Wait() }()
	return cmd.Process.Pid, nil
}

// installedRuntime returns the runtime whose program is on the disk.
func installedRuntime() guestapi.Runtime {
	if _, err := os.Stat(guestapi.CRIO.Program()); err == nil {
		return guestapi.CRIO
	}
	return guestapi.Containerd
}

func startRuntime() (pid int, err error) {
	r := installedRuntime()
	pid, err = detach([]string{r.Program(), "--log-level", "info"}, r.Log())
	if err == nil {
		err = os.WriteFile(r.PIDFile(), []byte(strconv.Itoa(pid)), 0o644)
	}
	return pid, err
}

// runtime starts the runtime again after the harness has killed it, as a service manager would.
func (s *service) runtime(w http.ResponseWriter, _ *http.Request) {
	pid, err := startRuntime()
	reply(w, guestapi.ExecResult{PID: pid}, err)
}

func (s *service) readFile(w http.ResponseWriter, r *http.Request) {
	f, err := os.Open(r.FormValue("path"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	defer f.Close()
	if from, err := strconv.ParseInt(r.FormValue("from"), 10, 64); err == nil && from > 0 {
		if _, err := f.Seek(from, io.SeekStart); err != nil {
			reply(w, nil, err)
			return
		}
	}
	_, _ = io.Copy(w, f)
}

func (s *service) writeFile(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Query().Get("path")
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		var f *os.File
		if f, err = os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|unix.O_NONBLOCK, 0o755); err == nil {
			_, err = io.Copy(f, r.Body)
			err = errors.Join(err, f.Close())
		}
	}
	reply(w, struct{}{}, err)
}

// forward pipes connections from a TCP port of the guest to a unix socket in it.
func forward(port int, socket string) error {
	l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	go func() {
		for {
			outside, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer outside.Close()
				inside, err := net.Dial("unix", socket)
				if err != nil {
					return
				}
				defer inside.Close()
				done := make(chan struct{}, 2)
				copyTo := func(dst, src net.Conn) { _, _ = io.Copy(dst, src); done <- struct{}{} }
				go copyTo(inside, outside)
				go copyTo(outside, inside)
				<-done
			}()
		}
	}()
	return nil
}
