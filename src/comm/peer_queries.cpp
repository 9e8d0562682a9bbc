/// @file
/// Questions between ranks and their answers are small messages on the control communicator.

#include "comm/peer_queries.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "comm/control_tags.hpp"
#include "comm/shm/doorbell.hpp"

namespace strata::comm {
namespace {

/// Two ticks of the driver and some.
constexpr std::int64_t kStayNs = 300'000'000;

}  // namespace

PeerQueries::PeerQueries(MPI_Comm communicator, std::function<std::int64_t(const PeerQuery&)> count)
    : communicator_(communicator), count_(std::move(count)) {
  listen();
}

PeerQueries::~PeerQueries() {
  if (std::uncaught_exceptions() == 0 && listening_ != MPI_REQUEST_NULL) {
    MPI_Cancel(&listening_);
    MPI_Wait(&listening_, MPI_STATUS_IGNORE);
  }
}

void PeerQueries::listen() {
  check(MPI_Irecv(&incoming_, static_cast<int>(sizeof(incoming_)), MPI_BYTE, MPI_ANY_SOURCE, kQueryTag, communicator_,
                  &listening_),
        "MPI_Irecv");
}

void PeerQueries::serve() {
  int free_to_answer = 0;
  check(MPI_Test(&answering_, &free_to_answer, MPI_STATUS_IGNORE), "MPI_Test");
  if (free_to_answer == 0) {
    return;
  }
  int arrived = 0;
  MPI_Status status;
  check(MPI_Test(&listening_, &arrived, &status), "MPI_Test");
  if (arrived == 0) {
    return;
  }
  outgoing_ = count_(incoming_);
  check(MPI_Isend(&outgoing_, 1, MPI_INT64_T, status.MPI_SOURCE, kAnswerTag, communicator_, &answering_), "MPI_Isend");
  listen();
}

std::vector<std::optional<std::int64_t>> PeerQueries::ask(std::span<const int> ranks, const PeerQuery& query,
                                                          double patience_seconds) {
  // Members, because a message to a stopped rank may stay pending until the job ends.
  question_ = query;
  answers_.assign(ranks.size(), -1);
  requests_.assign(2 * ranks.size(), MPI_REQUEST_NULL);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    check(MPI_Irecv(&answers_[i], 1, MPI_INT64_T, ranks[i], kAnswerTag, communicator_, &requests_[2 * i]), "MPI_Irecv");
    check(MPI_Isend(&question_, static_cast<int>(sizeof(question_)), MPI_BYTE, ranks[i], kQueryTag, communicator_,
                    &requests_[2 * i + 1]),
          "MPI_Isend");
  }
  const std::int64_t begin_ns = now_ns();
  const std::int64_t give_up_ns = begin_ns + static_cast<std::int64_t>(patience_seconds * 1e9);
  // The watchdogs of the others fire about now too: who left with its own answers would count as silent for them.
  const std::int64_t stay_until_ns = std::min(give_up_ns, begin_ns + kStayNs);
  std::vector<std::optional<std::int64_t>> result(ranks.size());
  std::size_t num_answers = 0;
  for (std::int64_t now = begin_ns; now < stay_until_ns || (num_answers < ranks.size() && now < give_up_ns);
       now = now_ns()) {
    serve();
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      int arrived = 0;
      if (!result[i]) {
        check(MPI_Test(&requests_[2 * i], &arrived, MPI_STATUS_IGNORE), "MPI_Test");
        if (arrived != 0) {
          result[i] = answers_[i];
          ++num_answers;
        }
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return result;
}

}  // namespace strata::comm
