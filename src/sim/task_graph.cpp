#include "sim/task_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "cost/group_shape.hpp"
#include "ir/program/members.hpp"

namespace strata {

Job unfolded(const std::vector<Program>& programs, int ranks_per_node) {
  Job job{.programs = {}, .class_of_rank = {}, .ranks_per_node = ranks_per_node};
  for (const Program& program : programs) {
    job.class_of_rank.push_back(static_cast<int>(job.programs.size()));
    job.programs.push_back(&program);
  }
  return job;
}

namespace sim {
namespace {

class Compiler {
 public:
  Compiler(const Job& job, std::span<const InstructionList> lists, const CostModel& costs, bool issue_in_list_order)
      : job_(job), lists_(lists), costs_(costs), issue_in_list_order_(issue_in_list_order) {
    result_.seconds_by_basis.assign(4, 0.0);
  }

  Compiled run() && {
    for (std::size_t c = 0; c < job_.programs.size(); ++c) {
      result_.graphs.push_back(graph(*job_.programs[c], lists_[c]));
    }
    return std::move(result_);
  }

 private:
  TaskGraph graph(const Program& program, const InstructionList& list) {
    TaskGraph graph;
    graph.tasks.reserve(list.size());
    std::vector<std::pair<int, int>> dependencies;                  // who waits for whom, by who waits
    std::vector<std::optional<Cost>> kernels(program.body.size());  // the same in every repetition
    std::vector<int> last_on_stream(program.streams.size(), -1);
    int last_kernel = -1;
    std::vector<int> before;
    partners_.clear();
    for (Channel& channel : channels_) channel.num_sent = channel.num_received = 0;
    for (int i = 0; i < static_cast<int>(list.size()); ++i) {
      const Instruction& in = list[static_cast<std::size_t>(i)];
      Task& task = graph.tasks.emplace_back();
      before.clear();
      for (const Wait& wait : list.waits(static_cast<std::size_t>(i))) {
        if (wait.lag == 0) before.push_back(wait.instruction);  // what lies further back is over: repetitions join
      }
      int& last = last_on_stream[static_cast<std::size_t>(in.stream)];
      if (last >= 0) before.push_back(last);
      last = i;
      if (in.is_collective()) {
        if (issue_in_list_order_ && last_kernel >= 0) before.push_back(last_kernel);
        task.rendezvous = meet(program, in);
      } else {
        last_kernel = i;
        const std::size_t in_body =
            list.is_section() ? static_cast<std::size_t>(i)
                              : static_cast<std::size_t>(list.origin(static_cast<std::size_t>(i)).instruction);
        std::optional<Cost>& cost = kernels[in_body];
        if (!cost) cost = costs_.kernel(program, in);
        task.seconds = counted(*cost);
      }
      std::ranges::sort(before);
      before.erase(std::unique(before.begin(), before.end()), before.end());
      task.num_waits = static_cast<int>(before.size());
      for (const int b : before) dependencies.emplace_back(i, b);
    }
    add_dependents(dependencies, graph);
    return graph;
  }

  /// @param dependencies (who waits, for whom), by who waits; in that order each task's dependents stand too.
  static void add_dependents(std::span<const std::pair<int, int>> dependencies, TaskGraph& graph) {
    for (const auto& [_, before] : dependencies) ++graph.tasks[static_cast<std::size_t>(before)].num_dependents;
    int first = 0;
    for (Task& task : graph.tasks) task.first_dependent = std::exchange(first, first + task.num_dependents);
    graph.dependents.resize(dependencies.size());
    std::vector<int> next;  // by task: where its next dependent goes
    next.reserve(graph.tasks.size());
    for (const Task& task : graph.tasks) next.push_back(task.first_dependent);
    for (const auto& [dependent, before] : dependencies) {
      graph.dependents[static_cast<std::size_t>(next[static_cast<std::size_t>(before)]++)] = dependent;
    }
  }

  template <class AnyCost>
  double counted(const AnyCost& cost) {
    result_.seconds_by_basis[static_cast<std::size_t>(cost.basis)] += cost.seconds;
    return cost.seconds;
  }

  /// What all operations of one class in one group have in common; of messages, all to or from one peer.
  struct Partners {
    int channel = 0;
    int num_needed = 0;
    int group_size = 0;
    Placement place;
    int node = 0;    ///< of the representative
    int images = 1;  ///< groups of the same classes that the node carries at the same time, this one included
  };

  /// Members are told apart by class, so that a class meets its neighbours' class even where its representative's
  /// neighbour is not theirs. The n-th operation of a group on one member meets the n-th on the others.
  int meet(const Program& program, const Instruction& in) {
    const Partners& partners = partners_of(program, in);
    Channel& channel = channels_[static_cast<std::size_t>(partners.channel)];
    const int number = in.collective == Collective::recv ? channel.num_received++ : channel.num_sent++;
    if (number == static_cast<int>(channel.meetings.size())) {
      channel.meetings.push_back(static_cast<int>(result_.rendezvous.size()));
      Rendezvous& meeting = result_.rendezvous.emplace_back();
      meeting.num_needed = partners.num_needed;
      meeting.group_size = partners.group_size;
      const Collective kind = in.collective == Collective::recv ? Collective::send : in.collective;
      const CollectiveCost cost = costs_.collective(kind, priced_bytes(program, in), partners.place);
      meeting.seconds = counted(cost);
      meeting.nics = cost.nics_used;
    }
    const int id = channel.meetings[static_cast<std::size_t>(number)];
    add_links(result_.rendezvous[static_cast<std::size_t>(id)], partners, in.collective);
    return id;
  }

  const Partners& partners_of(const Program& program, const Instruction& in) {
    const bool sends = in.collective == Collective::send;
    const auto [found, is_new] = partners_.try_emplace({in.group, is_message(in) ? in.root : -1, sends});
    if (!is_new) return found->second;
    Partners& partners = found->second;
    std::string key = program.groups[static_cast<std::size_t>(in.group)].name;
    const std::vector<int> members = members_of(program, in);
    std::set<int> classes;
    if (is_message(in)) {
      key += fmt::format(" message {} {}", class_of(members[0]), class_of(members[1]));
    } else {
      for (const int member : members) classes.insert(class_of(member));
      key += fmt::format(" {}", fmt::join(classes, " "));
    }
    const auto [channel, _] = channel_ids_.try_emplace(std::move(key), static_cast<int>(channels_.size()));
    if (channel->second == static_cast<int>(channels_.size())) channels_.emplace_back();
    partners.channel = channel->second;
    partners.num_needed = is_message(in) ? 2 : static_cast<int>(classes.size());
    partners.group_size = static_cast<int>(members.size());
    partners.place = placement(members, job_.ranks_per_node, job_.leaf_of_node);
    find_images(partners, program.rank, members);
    return partners;
  }

  void find_images(Partners& partners, int representative, const std::vector<int>& members) const {
    const int node = representative / job_.ranks_per_node;
    const int own_class = class_of(representative);
    int members_here = 0;
    for (const int member : members) {
      if (member / job_.ranks_per_node == node && class_of(member) == own_class) ++members_here;
    }
    int class_here = 0;
    for (int r = node * job_.ranks_per_node; r < std::min((node + 1) * job_.ranks_per_node, job_.num_ranks()); ++r) {
      if (class_of(r) == own_class) ++class_here;
    }
    partners.node = node;
    partners.images = std::max(1, class_here / std::max(1, members_here));
  }

  /// The representative's node carries this group and its mirror images; of a message what it sends or what it
  /// receives.
  void add_links(Rendezvous& meeting, const Partners& partners, Collective kind) const {
    if (meeting.nics == 0) return;
    if (meeting.links.empty()) meeting.nics *= partners.images;
    if (kind != Collective::recv) add_once(meeting.links, outgoing_link(partners.node));
    if (kind != Collective::send) add_once(meeting.links, incoming_link(partners.node));
  }

  static void add_once(std::vector<int>& links, int link) {
    if (std::ranges::find(links, link) == links.end()) links.push_back(link);
  }

  int class_of(int rank) const { return job_.class_of_rank.at(static_cast<std::size_t>(rank)); }

  const Job& job_;
  std::span<const InstructionList> lists_;
  const CostModel& costs_;
  bool issue_in_list_order_;
  Compiled result_;
  /// Where operations meet: a group and the classes in it, or the two ends of messages.
  struct Channel {
    std::vector<int> meetings;  ///< rendezvous, in order
    int num_sent = 0;           ///< operations of the current class so far, receptions aside
    int num_received = 0;
  };
  std::vector<Channel> channels_;
  std::map<std::string, int> channel_ids_;
  std::map<std::tuple<int, int, bool>, Partners> partners_;  ///< of the current class: group, peer or -1, sends
};

}  // namespace

Compiled compile(const Job& job, std::span<const InstructionList> lists, const CostModel& costs,
                 bool issue_in_list_order) {
  return Compiler(job, lists, costs, issue_in_list_order).run();
}

}  // namespace sim
}  // namespace strata
