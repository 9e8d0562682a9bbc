#pragma once

/// @file
/// Collects buffers and instructions of one rank, each with the place of the order that it belongs to. Dependencies,
/// lifetimes and addresses are not written by hand anywhere: waits follow from who touches the same elements on another
/// stream, in this repetition of the body or in an earlier one, alloc and free from the first and last use, addresses
/// from the lifetimes.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/program/program.hpp"
#include "lower/lower.hpp"

namespace strata {

class ProgramBuilder;

/// A place of a Program that is made, to which instructions are added one behind the other. Where that is it was told
/// when it was made: of two places either may be added to next.
class Place {
 public:
  /// Append @p instruction. @return its number in its section, in the order of emission.
  /// @param after instructions that must be complete before it although no element says so: what is known to be
  /// complete by cause, so that its memory may be used again.
  int emit(Instruction&& instruction, std::span<const int> after = {}) const;

  /// The next instruction on @p stream that is emitted for this training step waits for @p instruction, although no
  /// element says so: nothing runs under it.
  void hold(int stream, int instruction) const;

  /// Buffer @p id lives from the next instruction on, if it does not already: where ranks come to use it at different
  /// times, and should need the same memory. What uses it first comes after that instruction on every stream.
  void reserve(int id) const;

  /// The last instruction on @p stream that has been emitted for this section and training step, -1: none.
  int last_on(int stream) const;

 private:
  friend class ProgramBuilder;
  enum class Section : std::uint8_t { prologue, body };
  /// In the body: its items stand in their order, in whichever they are lowered.
  struct Position {
    Section section = Section::prologue;
    int training_step = 0;  ///< of the body's, for which it is lowered
    int item = 0;           ///< of the body's order
    int step = 0;           ///< relative training step of that item
    bool is_behind = true;  ///< false: it stands before what the item itself has
    bool operator==(const Position&) const = default;
  };
  Place(ProgramBuilder& builder, const Position& position) : builder_(&builder), position_(position) {}

  ProgramBuilder* builder_;
  Position position_;
};

class ProgramBuilder {
 public:
  /// @param streams names; stream 0 is compute.
  ProgramBuilder(int rank, int num_ranks, std::vector<std::string> streams);

  int rank() const { return program_.rank; }
  int num_streams() const { return static_cast<int>(program_.streams.size()); }
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

  /// The body will have about so many instructions, and as many buffers: neither is moved as it grows.
  void make_room(std::size_t num_instructions);

  Place prologue() { return {*this, {}}; }
  /// Of item @p item of the body's order, which belongs to relative training step @p step, lowered with others for
  /// training step @p training_step of the body: these are emitted one training step after the other. An instruction
  /// waits for what has been emitted before it for the same training step, and for what finish() finds of the others.
  Place item(int training_step, int item, int step) {
    return {*this, {Place::Section::body, training_step, item, step, true}};
  }
  /// The same, before what the item itself has, of whichever training step.
  Place before_item(int training_step, int item, int step) {
    return {*this, {Place::Section::body, training_step, item, step, false}};
  }

  /// Of bodies whose passes begin at items @p first_items of the order: what is received comes behind the kernels that
  /// stand before it, and what is sent behind a pass has been taken when the pass behind the next one begins. So the
  /// memory of messages is used again after a pass, however many training steps the body holds.
  void keep_messages_close(std::vector<int> first_items) { passes_ = std::move(first_items); }

  /// Where the loss, what of evaluation is counted, and the gradient norm are found after the body.
  void set_loss(int id) { program_.loss_buffer = id; }
  void set_correct(int id) { program_.correct_buffer = id; }
  void set_norm(int id) { program_.norm_buffer = id; }
  int norm() const { return program_.norm_buffer; }  ///< -1: not yet

  /// Fuse what one kernel computes, add waits, workspaces, lifetimes and addresses, and verify.
  Program finish(const KernelTraits& kernels) &&;

 private:
  friend class Place;
  /// What was said of a section beside its instructions.
  struct Section {
    std::vector<Place::Position> positions{};  ///< by instruction, in the order of emission
    std::vector<std::vector<int>> after{};     ///< by instruction: what must be complete before it
    struct Hold {
      int training_step = 0;
      int first = 0;  ///< number of the instruction that was emitted next: the one on `stream` from there on waits
      int stream = 0;
      int instruction = 0;
    };
    std::vector<Hold> holds{};
    std::vector<std::pair<int, int>> reserved{};  ///< number of the instruction that was emitted next, and the buffer
  };
  Section& of(Place::Section section) { return section == Place::Section::prologue ? prologue_ : body_; }
  std::vector<Instruction>& instructions_of(Place::Section section) {
    return section == Place::Section::prologue ? program_.prologue : program_.body;
  }
  bool is_same_work(const Section& section, std::size_t before, std::size_t i) const;
  void fuse_body(const Fusions& fusions);
  void remove_unused_buffers();
  void find_waits(Place::Section section);
  void add_reserved(Place::Section section);
  void put_items_in_order();
  void wait_for_close_messages();
  void find_waits_across_repetitions();

  Program program_;
  Section prologue_;
  Section body_;
  std::vector<int> passes_;  ///< their first items, where messages are kept close
};

}  // namespace strata
