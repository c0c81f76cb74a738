package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"

	"golang.org/x/sys/unix"

	"jettison/e2e/guestapi"
)

// ballastDir is a separate tmpfs that may use all memory. It keeps the node just above a threshold,
// or pushes it below, and belongs to no pod.
const ballastDir = "/run/ballast"

// ballastFile's pages are allocated by fallocate and freed by truncation: neither needs a process.
const ballastFile = ballastDir + "/file"

// ballastSlack is the accepted difference from the request: the kernel counts in batches.
const ballastSlack = 256 << 10

func (s *service) ballast(w http.ResponseWriter, r *http.Request) {
	var req guestapi.BallastRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m, err := holdBallast(req)
	reply(w, m, err)
}

// holdBallast adjusts the ballast until the requested memory is available, as far as there is
// ballast to free. It returns the memory as last read, which with Once is before its only step.
func holdBallast(req guestapi.BallastRequest) (out guestapi.Memory, err error) {
	file, err := openBallast()
	if err != nil {
		return out, err
	}
	defer file.Close()
	mem, err := openMemory("/proc", "/sys/fs/cgroup")
	if err != nil {
		return out, err
	}
	defer mem.close()
	for range 10 {
		if out, err = mem.all(); err != nil {
			return out, err
		}
		excess := out.By(req.By) - req.Available
		if abs(excess) <= ballastSlack {
			return out, nil
		}
		info, err := file.Stat()
		if err != nil {
			return out, err
		}
		held := info.Size()
		switch {
		case excess > 0:
			err = unix.Fallocate(int(file.Fd()), 0, held, excess&^(pageSize-1))
		case held == 0:
			return out, nil
		default:
			err = file.Truncate(max(held+excess, 0) &^ (pageSize - 1))
		}
		if err != nil {
			return out, fmt.Errorf("hold %d bytes of ballast: %w", held+excess, err)
		}
		if req.Once {
			return out, nil
		}
	}
	return out, nil
}

func openBallast() (*os.File, error) {
	if _, err := os.Stat(ballastDir); errors.Is(err, os.ErrNotExist) {
		if err := os.Mkdir(ballastDir, 0o700); err != nil {
			return nil, err
		}
		if err := unix.Mount("tmpfs", ballastDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=100%"); err != nil {
			return nil, fmt.Errorf("mount %s: %w", ballastDir, err)
		}
	}
	return os.OpenFile(ballastFile, os.O_CREATE|os.O_RDWR, 0o600)
}
