package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"jettison/internal/bridge/kube"
)

// boundMinor is the first minor version of Kubernetes 1 whose admission policies can hold a bridge
// to its node: they are stable, and tokens say which node theirs is (kube_features.go,
// ValidatingAdmissionPolicy and ServiceAccountTokenPodNodeInfo, v1.30).
const minMinor = 30

// server is the API server, as far as its version matters.
type server struct {
	client *kube.Client
	status bool // pods' statuses are to be written
	log    *slog.Logger

	logOldVersion sync.Once // that it is too old is said
}

// bound tells whether it can hold a bridge to its node. Where it cannot nothing is written but
// events.
func (s *server) canRestrict(ctx context.Context) (bool, error) {
	minor, err := s.client.Minor(ctx)
	if err != nil {
		return false, err
	}
	if minor < minMinor {
		s.logOldVersion.Do(func() {
			s.log.Warn("the API server is older than 1.30 and cannot hold a bridge to its node: there are events alone",
				"version", fmt.Sprint("1.", minor))
		})
		return false, nil
	}
	return true, nil
}

// statuses tells whether pods' statuses are written.
func (s *server) writeStatus(ctx context.Context) (bool, error) {
	if !s.status {
		return false, nil
	}
	return s.canRestrict(ctx)
}
