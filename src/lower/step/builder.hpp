#pragma once

/// @file
/// Collects buffers and instructions of one rank. Dependencies, lifetimes and addresses are not written by hand
/// anywhere: waits follow from who touches the same elements on another stream, in this repetition of the body or in an
/// earlier one, alloc and free from the first and last use, addresses from the lifetimes.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/program/program.hpp"
#include "lower/lower.hpp"
#include "lower/step/wait_finder.hpp"

namespace strata {

class ProgramBuilder {
 public:
  /// @param streams names; stream 0 is compute.
  ProgramBuilder(int rank, int num_ranks, std::vector<std::string> streams);

  int rank() const { return program_.rank; }
  int add_buffer(Buffer buffer);
  /// One that lasts and that training steps share: made for the first who asks for its name, the same for others.
  int shared_buffer(const Buffer& buffer);
  int add_group(Group group);
  const Group& group(int id) const { return program_.groups[static_cast<std::size_t>(id)]; }
  const Buffer& buffer(int id) const { return program_.buffers[static_cast<std::size_t>(id)]; }
  /// All elements of a buffer.
  Operand whole(int id) const { return {id, 0, buffer(id).num_elements}; }

  /// Repetitions of the body are not joined: see Program::join. What one must wait for of another is found in finish().
  void let_steps_overlap() { program_.join = false; }
  void set_steps_per_body(int num_steps) { program_.steps_per_body = num_steps; }

  enum class Section { prologue, body };
  /// Instructions go to @p section from now on. Sections are filled one after the other.
  void begin(Section section);

  /// Lower another training step of the body's: what is emitted from now on waits for nothing that has been emitted for
  /// other steps; what it must wait for of those is found in finish().
  void begin_training_step();
  /// What is emitted from now on belongs to item @p item of the order, of relative training step @p step. The body has
  /// its items in their order, in whichever they are lowered.
  void begin_item(int item, int step);
  /// The same, before what the item itself has, of whichever training step.
  void begin_before_item(int item, int step);

  /// Append @p instruction with the waits it needs. @return its number, in the order of emission.
  /// @param after instructions that must be complete too, although no element says so: what is known to be complete by
  /// cause, so that its memory may be used again.
  int emit(Instruction instruction, std::span<const int> after = {});

  /// The next instruction on @p stream waits for @p instruction, although no element says so: nothing runs under it.
  void hold(int stream, int instruction) { held_[static_cast<std::size_t>(stream)].push_back(instruction); }

  /// Buffer @p id lives from the next instruction on, if it does not already: where ranks come to use it at different
  /// times, and should need the same memory. What uses it first comes after that instruction on every stream.
  void reserve(int id) { reserved_.push_back(id); }

  /// Of bodies whose passes begin at items @p first_items of the order: what is received comes behind the kernels that
  /// stand before it, and what is sent behind a pass has been taken when the pass behind the next one begins. So the
  /// memory of messages is used again after a pass, however many training steps the body holds.
  void keep_messages_close(std::vector<int> first_items) { passes_ = std::move(first_items); }

  /// The last instruction on @p stream in this section and training step, -1: none.
  int last_on(int stream) const { return last_[static_cast<std::size_t>(stream)]; }

  /// Where the loss and the gradient norm are found after the body.
  void set_loss(int id) { program_.loss_buffer = id; }
  void set_norm(int id) { program_.norm_buffer = id; }
  int norm() const { return program_.norm_buffer; }  ///< -1: not yet

  /// Add workspaces, lifetimes and addresses, and verify.
  Program finish(const WorkspaceBytes& workspace_bytes) &&;

 private:
  /// Where an instruction of the body stands.
  struct Place {
    int item = 0;
    int step = 0;
    bool is_behind = true;  ///< false: it stands before what the item itself has
  };
  std::vector<Instruction>& section();
  void put_items_in_order();
  void wait_for_close_messages();
  void find_waits_across_repetitions();

  Program program_;
  Section current_ = Section::prologue;
  Place place_;                         ///< of what is emitted next
  std::vector<Place> places_;           ///< by instruction of the body, in the order of emission
  std::vector<int> passes_;             ///< their first items, where messages are kept close
  int first_of_step_ = 0;               ///< instruction: the first that waits_ has seen
  WaitFinder waits_;                    ///< of this section and training step
  std::vector<int> last_;               ///< by stream, of this section and training step
  std::vector<std::vector<int>> held_;  ///< by stream: what its next instruction waits for
  std::vector<int> reserved_;           ///< buffers that live from the next instruction on
};

}  // namespace strata
